//! Watches memory while a target runs: what a file makes us hold is bounded by its size.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes held now.
static HELD: AtomicUsize = AtomicUsize::new(0);
/// Bytes that may be held.
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// What is held whatever the input: buffers of files, tables of the standard library.
const BASE: usize = 8 << 20;

struct Watched;

// SAFETY: every call is the system allocator's, counted.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        grow(size);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

fn grow(size: usize) {
    let held = HELD.fetch_add(size, Ordering::Relaxed) + size;
    if held > LIMIT.load(Ordering::Relaxed) {
        LIMIT.store(usize::MAX, Ordering::Relaxed);
        panic!("{size} bytes more, {held} in all: more than ten times the input");
    }
}

/// From here on no more than ten times `input` is held beyond what is held now.
pub fn bounded(input: &[u8]) {
    let held = HELD.load(Ordering::Relaxed);
    LIMIT.store(held.saturating_add(10 * input.len() + BASE), Ordering::Relaxed);
}
