//! Lists of what may be ready: any thread adds to one without a lock, and a thread that waits takes all at once.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// The place in a list of something that stays where it is as long as the process lives.
pub(super) struct Link {
    is_in: AtomicBool,
    next: AtomicPtr<Link>,
}

impl Link {
    pub(super) const fn new() -> Self {
        Link { is_in: AtomicBool::new(false), next: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Whether it stands in a list.
    pub(super) fn is_in(&self) -> bool {
        self.is_in.load(Ordering::Acquire)
    }

    /// It was taken out of one: from here on it is added anew.
    pub(super) fn is_out(&self) {
        self.is_in.store(false, Ordering::SeqCst);
    }
}

/// A list.
pub(super) struct Links {
    /// The last that was added.
    last: AtomicPtr<Link>,
}

impl Links {
    pub(super) const fn new() -> Self {
        Links { last: AtomicPtr::new(std::ptr::null_mut()) }
    }

    #[inline]
    pub(super) fn are_none(&self) -> bool {
        self.last.load(Ordering::Acquire).is_null()
    }

    /// Adds one, unless it stands in a list.
    pub(super) fn push(&self, link: &'static Link) {
        if !link.is_in.swap(true, Ordering::SeqCst) {
            self.add(link);
        }
    }

    /// Adds one that stands in no list, and is marked as one that does.
    fn add(&self, link: &'static Link) {
        let new = std::ptr::from_ref(link).cast_mut();
        let mut last = self.last.load(Ordering::Relaxed);
        loop {
            link.next.store(last, Ordering::Relaxed);
            let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            match self.last.compare_exchange_weak(last, new, success, failure) {
                Ok(_) => return,
                Err(now) => last = now,
            }
        }
    }

    /// Takes all, the first that was added first.
    pub(super) fn take(&self) -> Taken {
        let mut last = self.last.swap(std::ptr::null_mut(), Ordering::AcqRel);
        let mut taken = Taken::new();
        // SAFETY: what stands in a list stays where it is.
        while let Some(link) = unsafe { last.as_ref() } {
            let before = link.next.load(Ordering::Relaxed);
            link.next.store(taken.first, Ordering::Relaxed);
            taken.first = last;
            last = before;
        }
        taken
    }

    /// Adds what was taken, in its order.
    pub(super) fn put_back(&self, mut taken: Taken) {
        while let Some(link) = taken.next() {
            self.add(link);
        }
    }
}

/// Links of one thread's, the first of which is first.
pub(super) struct Taken {
    first: *mut Link,
    last: *mut Link,
}

impl Taken {
    pub(super) fn new() -> Self {
        Taken { first: std::ptr::null_mut(), last: std::ptr::null_mut() }
    }

    /// Takes the first. It is marked as one that stands in a list still.
    pub(super) fn next(&mut self) -> Option<&'static Link> {
        // SAFETY: what stands in a list stays where it is.
        let link = unsafe { self.first.as_ref() }?;
        self.first = link.next.load(Ordering::Relaxed);
        Some(link)
    }

    /// Adds one behind all others, unless it stands in a list. None was taken from this one.
    pub(super) fn push(&mut self, link: &'static Link) {
        if link.is_in.swap(true, Ordering::SeqCst) {
            return;
        }
        link.next.store(std::ptr::null_mut(), Ordering::Relaxed);
        let new = std::ptr::from_ref(link).cast_mut();
        // SAFETY: as in `next`.
        match unsafe { self.last.as_ref() } {
            Some(last) => last.next.store(new, Ordering::Relaxed),
            None => self.first = new,
        }
        self.last = new;
    }
}
