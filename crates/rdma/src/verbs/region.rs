//! Memory regions and windows, and whether an access is granted.

use alloc::vec::Vec;

use super::access::Access;
use super::id::{Pd, Qp};
use super::stags::{Stags, index};
use super::work::{Bind, FastRegister};
use super::{Error, Limits};
use crate::ddp::TaggedError;
use crate::memory::Handle;
use crate::rdmap::terminate::{Cause, Protection};

/// The kinds of windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowKind {
    /// Type 1: for all queue pairs of its protection domain; bound anew to take it away.
    One,
    /// Type 2B: for the queue pair that bound it; invalidated to take it away.
    Two,
}

/// What is registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registration {
    /// The protection domain.
    pub pd: Pd,
    /// The tagged offset of its first byte: the application's address, or what `ibv_reg_mr_iova` says.
    pub iova: u64,
    /// Its bytes. Not zero.
    pub len: u64,
    /// Its rights.
    pub access: Access,
    /// The device's name for it: what [`Memory`](crate::Memory) is asked for.
    pub memory: Handle,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Region,
    /// A region for fast registration, of so many bytes at most.
    Fast {
        most: u64,
    },
    Window(WindowKind),
}

/// A region or a window.
#[derive(Clone, Debug)]
struct Entry {
    kind: Kind,
    /// The index, and the key that is valid now or was last.
    stag: u32,
    /// It may be used.
    valid: bool,
    pd: Pd,
    access: Access,
    iova: u64,
    len: u64,
    memory: Handle,
    /// Where it begins in that memory.
    begin: u64,
    /// Windows that are bound to it.
    windows: u32,
    /// A window's region.
    region: Option<u32>,
    /// A type 2 window's queue pair.
    qp: Option<Qp>,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) pd: Pd,
    pub(crate) qp: Qp,
}

/// Why an access is not granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Denied {
    InvalidStag,
    NotAssociated,
    Wrap,
    Bounds,
    Access,
}

impl Denied {
    /// As DDP tells of it: for what arrives in tagged buffers (RFC 5041 section 7). DDP knows no rights; that is
    /// RDMAP's (RFC 5040 section 7.2).
    pub(crate) fn of_tagged(self) -> Cause {
        match self {
            Denied::InvalidStag => TaggedError::InvalidStag.into(),
            Denied::NotAssociated => TaggedError::NotAssociated.into(),
            Denied::Wrap => TaggedError::Wrap.into(),
            Denied::Bounds => TaggedError::Bounds.into(),
            Denied::Access => Cause::Protection(Protection::Access),
        }
    }

    /// As RDMAP tells of it: for the source of a read, and for atomics (RFC 5040 section 7.2).
    pub(crate) fn of_request(self) -> Cause {
        Cause::Protection(match self {
            Denied::InvalidStag => Protection::InvalidStag,
            Denied::NotAssociated => Protection::NotAssociated,
            Denied::Wrap => Protection::Wrap,
            Denied::Bounds => Protection::Bounds,
            Denied::Access => Protection::Access,
        })
    }
}

/// A place that may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Granted {
    pub(crate) memory: Handle,
    pub(crate) offset: u64,
}

/// All regions and windows of a process.
#[derive(Debug)]
pub(crate) struct Regions {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    stags: Stags,
    limit: usize,
    /// Bytes of regions, and how many there may be.
    registered: u64,
    registered_most: u64,
}

impl Regions {
    pub(crate) fn new(limits: &Limits, secret: [u8; 16]) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            stags: Stags::new(limits.regions, secret),
            limit: limits.regions.min(1 << 22),
            registered: 0,
            registered_most: limits.registered,
        }
    }

    fn add(&mut self, entry: Entry) -> Result<u32, Error> {
        let bytes = entry.counted();
        let registered = self.registered.checked_add(bytes);
        if registered.is_none_or(|registered| registered > self.registered_most) {
            return Err(Error::Limit);
        }
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.entries.len() < self.limit => {
                self.entries.push(None);
                self.entries.len() as u32 - 1
            }
            None => return Err(Error::Limit),
        };
        // The owner may choose the next keys (the verbs specification).
        let stag = self.stags.draw(place);
        self.entries[place as usize] = Some(Entry { stag, ..entry });
        self.registered += bytes;
        Ok(stag)
    }

    /// Registers memory and returns its STag, which is lkey and rkey.
    pub(crate) fn register(&mut self, of: Registration) -> Result<u32, Error> {
        let Registration { pd, iova, len, access, memory } = of;
        let access = access.for_region()?;
        // Overflow is an error here, so that no sum of the region's can overflow later.
        if len == 0 || iova.checked_add(len).is_none() {
            return Err(Error::Invalid);
        }
        let entry = Entry::new(Kind::Region, pd);
        self.add(Entry { valid: true, access, iova, len, memory, ..entry })
    }

    /// A region for fast registration: invalid until a work request makes it valid.
    pub(crate) fn allocate(&mut self, pd: Pd, most: u64) -> Result<u32, Error> {
        if most == 0 {
            return Err(Error::Invalid);
        }
        self.add(Entry::new(Kind::Fast { most }, pd))
    }

    /// A window that is bound to nothing.
    pub(crate) fn window(&mut self, pd: Pd, kind: WindowKind) -> Result<u32, Error> {
        self.add(Entry::new(Kind::Window(kind), pd))
    }

    fn place(&self, stag: u32) -> Option<u32> {
        self.stags.find(index(stag))
    }

    #[inline]
    fn entry(&self, stag: u32) -> Option<&Entry> {
        self.entries.get(self.place(stag)? as usize)?.as_ref()
    }

    fn entry_mut(&mut self, stag: u32) -> Option<&mut Entry> {
        let place = self.place(stag)?;
        self.entries.get_mut(place as usize)?.as_mut()
    }

    /// Takes a region away, whatever its key is. Its memory and its domain.
    pub(crate) fn deregister(&mut self, stag: u32) -> Result<(Handle, Pd), Error> {
        let entry = self.entry(stag).ok_or(Error::Invalid)?;
        if matches!(entry.kind, Kind::Window(_)) {
            return Err(Error::Invalid);
        }
        if entry.windows > 0 {
            return Err(Error::Busy);
        }
        let (memory, pd) = (entry.memory, entry.pd);
        self.remove(stag);
        Ok((memory, pd))
    }

    /// Takes a window away. Its domain.
    pub(crate) fn deallocate(&mut self, stag: u32) -> Result<Pd, Error> {
        let entry = self.entry(stag).ok_or(Error::Invalid)?;
        if !matches!(entry.kind, Kind::Window(_)) {
            return Err(Error::Invalid);
        }
        let pd = entry.pd;
        self.unbind(stag);
        self.remove(stag);
        Ok(pd)
    }

    fn remove(&mut self, stag: u32) {
        let Some(place) = self.place(stag) else { return };
        self.stags.remove(index(stag));
        if let Some(entry) = self.entries[place as usize].take() {
            self.registered -= entry.counted();
            self.free.push(place);
        }
    }

    /// Whether the access is granted, and to what memory. The questions are those of RFC 5041 section 7 and RFC
    /// 5040 section 7.2, in their order: the STag, whose it is, 2^64, bounds, rights. They are asked of each access
    /// (RFC 5042: an STag is good for the streams of its protection domain, or for one stream, and for no byte
    /// outside of its bounds).
    #[inline]
    pub(crate) fn check(
        &self,
        asker: Asker,
        stag: u32,
        offset: u64,
        len: u64,
        needed: Access,
    ) -> Result<Granted, Denied> {
        let entry = self.entry(stag).filter(|entry| entry.valid && entry.stag == stag);
        let entry = entry.ok_or(Denied::InvalidStag)?;
        if entry.pd != asker.pd || entry.qp.is_some_and(|qp| qp != asker.qp) {
            return Err(Denied::NotAssociated);
        }
        let end = offset.checked_add(len).ok_or(Denied::Wrap)?;
        if offset < entry.iova || end > entry.iova + entry.len {
            return Err(Denied::Bounds);
        }
        if !entry.access.grants(needed) {
            return Err(Denied::Access);
        }
        Ok(Granted { memory: entry.memory, offset: entry.begin + (offset - entry.iova) })
    }

    /// As [`check`](Self::check) for the application's own elements: an lkey is a region's, never a window's.
    #[inline]
    pub(crate) fn check_local(
        &self,
        asker: Asker,
        lkey: u32,
        offset: u64,
        len: u64,
        needed: Access,
    ) -> Result<Granted, Denied> {
        if self.entry(lkey).is_some_and(|entry| matches!(entry.kind, Kind::Window(_))) {
            return Err(Denied::InvalidStag);
        }
        self.check(asker, lkey, offset, len, needed)
    }

    /// Binds a window to a part of a region, or to nothing. `asker` has the queue pair whose work this is.
    pub(crate) fn bind(&mut self, asker: Asker, of: &Bind) -> Result<(), Denied> {
        let window = self.entry(of.window).ok_or(Denied::InvalidStag)?;
        let Kind::Window(kind) = window.kind else { return Err(Denied::InvalidStag) };
        if window.pd != asker.pd {
            return Err(Denied::NotAssociated);
        }
        // Verbs: a type 2 window must be invalid to be bound; the key is another than the last one.
        if kind == WindowKind::Two && (window.valid || of.len == 0) {
            return Err(Denied::InvalidStag);
        }
        if of.len == 0 {
            self.unbind(of.window);
            self.set_key(of.window);
            return Ok(());
        }
        let place = self.place(of.region).ok_or(Denied::InvalidStag)?;
        let granted = self.check_local(asker, of.region, of.offset, of.len, Access::LOCAL_READ)?;
        let region = self.entry(of.region).map_or(Access::default(), |region| region.access);
        if !of.access.for_window(region) {
            return Err(Denied::Access);
        }
        self.unbind(of.window);
        self.set_key(of.window);
        if let Some(region) = self.entries[place as usize].as_mut() {
            region.windows += 1;
        }
        if let Some(window) = self.entry_mut(of.window) {
            window.valid = true;
            window.access = of.access;
            (window.iova, window.len) = (of.offset, of.len);
            (window.memory, window.begin) = (granted.memory, granted.offset);
            window.region = Some(place);
            window.qp = (kind == WindowKind::Two).then_some(asker.qp);
        }
        Ok(())
    }

    /// Makes a region of fast registration valid, with another key.
    pub(crate) fn fast_register(&mut self, asker: Asker, of: &FastRegister) -> Result<(), Denied> {
        let entry = self.entry_mut(of.stag).ok_or(Denied::InvalidStag)?;
        let Kind::Fast { most } = entry.kind else { return Err(Denied::InvalidStag) };
        if entry.pd != asker.pd {
            return Err(Denied::NotAssociated);
        }
        if entry.valid {
            return Err(Denied::InvalidStag);
        }
        if of.len == 0 || of.len > most {
            return Err(Denied::Bounds);
        }
        of.iova.checked_add(of.len).ok_or(Denied::Wrap)?;
        let access = of.access.for_region().map_err(|_| Denied::Access)?;
        entry.valid = true;
        entry.stag = of.stag;
        entry.access = access;
        (entry.iova, entry.len) = (of.iova, of.len);
        (entry.memory, entry.begin) = (of.memory, 0);
        Ok(())
    }

    /// Invalidates: a region of fast registration, or a type 2 window. By a work request of the application's
    /// (`remote` is false), or by the peer's Send with Invalidate, which RFC 5040 section 5.3 lets it do where it
    /// has remote access.
    pub(crate) fn invalidate(
        &mut self,
        asker: Asker,
        stag: u32,
        remote: bool,
    ) -> Result<(), Denied> {
        let entry = self.entry(stag).filter(|entry| entry.valid && entry.stag == stag);
        let entry = entry.ok_or(Denied::InvalidStag)?;
        if entry.pd != asker.pd || entry.qp.is_some_and(|qp| qp != asker.qp) {
            return Err(Denied::NotAssociated);
        }
        match entry.kind {
            // Others stay as their owner made them: nothing but deregistration and binding changes them.
            Kind::Region | Kind::Window(WindowKind::One) => return Err(Denied::InvalidStag),
            Kind::Fast { .. } if entry.windows > 0 => return Err(Denied::Access),
            Kind::Fast { .. } => {
                let reaches = [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC];
                if remote && !reaches.into_iter().any(|right| entry.access.grants(right)) {
                    return Err(Denied::Access);
                }
            }
            Kind::Window(WindowKind::Two) => self.unbind(stag),
        }
        if let Some(entry) = self.entry_mut(stag) {
            entry.valid = false;
        }
        Ok(())
    }

    /// The queue pair goes, and with it the type 2 windows that are its own.
    pub(crate) fn forget(&mut self, qp: Qp) {
        for place in 0..self.entries.len() {
            let entry = self.entries[place].as_ref().filter(|entry| entry.qp == Some(qp));
            if let Some(stag) = entry.map(|entry| entry.stag) {
                self.unbind(stag);
            }
        }
    }

    fn set_key(&mut self, stag: u32) {
        if let Some(entry) = self.entry_mut(stag) {
            entry.stag = stag;
        }
    }

    /// Takes a window off its region.
    fn unbind(&mut self, window: u32) {
        let Some(entry) = self.entry_mut(window) else { return };
        entry.valid = false;
        entry.qp = None;
        let Some(place) = entry.region.take() else { return };
        if let Some(region) = self.entries.get_mut(place as usize).and_then(Option::as_mut) {
            debug_assert!(region.windows > 0);
            region.windows -= 1;
        }
    }
}

impl Entry {
    fn new(kind: Kind, pd: Pd) -> Self {
        Self {
            kind,
            stag: 0,
            valid: false,
            pd,
            access: Access::default(),
            iova: 0,
            len: 0,
            memory: Handle::default(),
            begin: 0,
            windows: 0,
            region: None,
            qp: None,
        }
    }

    /// What of it counts as registered.
    fn counted(&self) -> u64 {
        match self.kind {
            Kind::Region => self.len,
            Kind::Fast { most } => most,
            Kind::Window(_) => 0,
        }
    }
}
