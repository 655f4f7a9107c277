//! Makes the C library's allocator give freed memory back to the system. What is freed while something younger is in use
//! above it would stay with the process for ever, so a server would remain as large as it has ever been.
//!
//! Blocks of the lock table, a few dozen kilobytes each, are mapped one by one, so they go back at once. For what is
//! smaller, such as lines that came in half, a thread looks at the process every few seconds and tells the allocator to
//! let go of its free pages when there may be some. It never runs where other C libraries than glibc are.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) use glibc::give_back_what_is_freed;

/// Other allocators have ways of their own.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn give_back_what_is_freed() {}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "there is no safe way to speak to the allocator")]
mod glibc {
    use std::time::{Duration, Instant};

    const SMALLEST_MAPPED: libc::c_int = 32 << 10;
    /// How often the process is looked at: seldom enough to cost nothing.
    const PAUSE: Duration = Duration::from_secs(5);
    /// What a process may keep above what it once made do with, at least and as a part of what it has.
    const WORTH_WHILE: u64 = 2 << 20;
    const WORTH_WHILE_PART: u64 = 8;
    /// While the allocator looks for free pages nobody else can allocate, a tenth of a second where there are millions of
    /// free blocks. So it rests for this many times as long as that took.
    const REST: u32 = 1000;

    /// Has to be called before there are other threads.
    pub(crate) fn give_back_what_is_freed() {
        // SAFETY: it stores a number inside the allocator, which any program may do at any time.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, SMALLEST_MAPPED);
        }
        // Without the thread the process only stays larger.
        let _ = std::thread::Builder::new()
            .name("memory".into())
            .stack_size(64 << 10)
            .spawn(watch);
    }

    fn watch() {
        let Some(mut least) = resident() else { return };
        let mut pause = PAUSE;
        loop {
            std::thread::sleep(pause);
            pause = PAUSE;
            let Some(now) = resident() else { return };
            least = least.min(now);
            if now - least > WORTH_WHILE.max(now / WORTH_WHILE_PART) {
                let begin = Instant::now();
                // SAFETY: it gives back pages that hold nothing; any thread may call it at any time.
                unsafe {
                    libc::malloc_trim(0);
                }
                pause = pause.max(begin.elapsed() * REST);
                // What is left is in use, as far as can be told.
                least = resident().unwrap_or(now);
            }
        }
    }

    /// Bytes of memory that belong to nobody else and to no file.
    fn resident() -> Option<u64> {
        let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
        let mut pages = pages.split(' ').skip(1).map(str::parse::<u64>);
        let (all, shared) = (pages.next()?.ok()?, pages.next()?.ok()?);
        Some(all.saturating_sub(shared) * rustix::param::page_size() as u64)
    }
}
