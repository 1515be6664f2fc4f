//! A global allocator that asks for huge pages for large allocations.
//!
//! Random accesses to a table, such as a flow table, miss the TLB nearly every time once the table has more
//! pages than the TLB has entries. With pages of 2 MB it has few.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

/// Size of a huge page on x86-64 and aarch64 with pages of 4 KB.
const HUGE: usize = 2 << 20;

/// The system's allocator. An allocation of a huge page or more is aligned to huge pages and advised to use
/// them (`MADV_HUGEPAGE`).
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: sys::allocator::HugePages = sys::allocator::HugePages;
/// ```
#[derive(Debug)]
pub struct HugePages;

/// The layout with which `layout` is allocated. It depends on the layout alone, so that the memory is freed
/// as it was allocated.
fn allocated(layout: Layout) -> Layout {
    if layout.size() < HUGE {
        return layout;
    }
    layout.align_to(HUGE).unwrap_or(layout)
}

fn advise(start: *mut u8, layout: Layout) {
    if !start.is_null() && layout.align() >= HUGE {
        // SAFETY: the range was allocated just now and is aligned to pages. The advice changes how
        // it is backed, not what it holds; what is refused is no loss.
        unsafe { libc::madvise(start.cast(), layout.size(), libc::MADV_HUGEPAGE) };
    }
}

// SAFETY: all memory comes from `System`, with a layout that has at least the size and alignment
// asked for, and goes back to it with that same layout.
unsafe impl GlobalAlloc for HugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let layout = allocated(layout);
        // SAFETY: the size is not 0, as the caller promises of its own layout.
        let start = unsafe { System.alloc(layout) };
        advise(start, layout);
        start
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let layout = allocated(layout);
        if layout.align() < HUGE {
            // SAFETY: as in `alloc`.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: as in `alloc`.
        let start = unsafe { System.alloc(layout) };
        advise(start, layout);
        if !start.is_null() {
            // SAFETY: so many bytes were allocated at `start`. They are written after the advice,
            // so that the first touch of each page can make it a huge one.
            unsafe { start.write_bytes(0, layout.size()) };
        }
        start
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: it was allocated with the same layout by the same rule.
        unsafe { System.dealloc(start, allocated(layout)) };
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if layout.size() < HUGE && new_size < HUGE {
            // SAFETY: both are the system's own, by the caller's promises.
            return unsafe { System.realloc(start, layout, new_size) };
        }
        // SAFETY: the caller promises that the new size, rounded up, does not overflow.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        // SAFETY: the new size is not 0, as the caller promises.
        let moved = unsafe { self.alloc(new) };
        if !moved.is_null() {
            // SAFETY: both are at least as long as the shorter size, and they are different
            // allocations; the old one is given back once, by its own layout.
            unsafe {
                std::ptr::copy_nonoverlapping(start, moved, layout.size().min(new_size));
                self.dealloc(start, layout);
            }
        }
        moved
    }
}

/// Returns freed memory to the operating system, in whole pages wherever they lie (`malloc_trim`). By itself
/// the allocator keeps free memory that lies below memory in use.
pub fn give_back() {
    // C libraries other than GNU's have no such call.
    #[cfg(target_env = "gnu")]
    // SAFETY: it only returns pages to the kernel that lie within free memory, and may be called from
    // any thread at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The system's allocator, with a count of allocated bytes, for tests.
#[derive(Debug)]
pub struct Counting;

static ALLOCATED: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);

impl Counting {
    /// Bytes allocated so far, freed or not.
    pub fn allocated() -> u64 {
        ALLOCATED.load(Ordering::Relaxed)
    }

    /// Bytes allocated and not freed.
    pub fn held() -> u64 {
        // In this order, so that the difference is never negative.
        let freed = FREED.load(Ordering::Relaxed);
        ALLOCATED.load(Ordering::Relaxed) - freed
    }
}

// SAFETY: all is the system's allocator's own; the counter has no part in it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promises are those that `System` asks for, here and below.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        FREED.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(start, layout) };
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATED.fetch_add(new_size as u64, Ordering::Relaxed);
        FREED.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: as in `alloc`.
        unsafe { System.realloc(start, layout, new_size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_allocations_are_aligned_and_keep_their_bytes_when_resized() {
        let sizes = [1, 4096, HUGE - 1, HUGE, 3 * HUGE + 5, 100, HUGE + 1];
        let mut layout = Layout::from_size_align(64, 8).unwrap();
        // SAFETY: the size is not 0, each block is given back once, by the layout that it has then,
        // and only bytes within it are read and written.
        unsafe {
            let mut block = HugePages.alloc(layout);
            block.write_bytes(0x5a, 1);
            for size in sizes {
                block = HugePages.realloc(block, layout, size);
                layout = Layout::from_size_align(size, 8).unwrap();
                assert_eq!(block.read(), 0x5a, "{size}");
                assert!(size < HUGE || block.align_offset(HUGE) == 0, "{size}");
                block.add(size - 1).write(if size == 1 { 0x5a } else { 1 });
            }
            HugePages.dealloc(block, layout);
            let zeroed = Layout::from_size_align(2 * HUGE, 8).unwrap();
            let block = HugePages.alloc_zeroed(zeroed);
            assert_eq!((block.read(), block.add(2 * HUGE - 1).read()), (0, 0));
            HugePages.dealloc(block, zeroed);
        }
    }
}
