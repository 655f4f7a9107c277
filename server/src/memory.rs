//! Makes the C library's allocator give freed memory back to the system.
//!
//! The lock table lives in blocks of a few dozen kilobytes. The allocator would keep those it got back
//! for later, so a server would stay as large as it has ever been; blocks that are mapped on their own go back at once.

/// Has to be called before there are other threads.
pub(crate) fn give_back_what_is_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const SMALLEST_MAPPED: libc::c_int = 32 << 10;
        #[allow(
            unsafe_code,
            reason = "there is no safe way to say this to the allocator"
        )]
        // SAFETY: it stores a number inside the allocator, which any program may do at any time.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, SMALLEST_MAPPED);
        }
    }
}
