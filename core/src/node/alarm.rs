//! Wakes the timer's task at a moment of the clock that goes on while the machine sleeps.
//!
//! On Linux this is a timer of the kernel that is set when the moment changes. The runtime's own
//! timers would arm and disarm one for every wait for sockets, which on a virtual machine costs more than
//! a request, and they stand still while the machine sleeps.

pub(crate) use system::Alarm;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use crate::engine::Time;
    use rustix::fd::OwnedFd;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use std::io;
    use std::task::{Context, Poll};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    /// See the [module](super).
    #[derive(Debug)]
    pub(crate) struct Alarm {
        timer: AsyncFd<OwnedFd>,
        set_for: Option<Time>,
    }

    impl Alarm {
        pub(crate) fn new() -> io::Result<Alarm> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
            #[allow(
                deprecated,
                reason = "unsound only for types that give their descriptor away, which OwnedFd does not; what replaces it is unsafe"
            )]
            let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
            Ok(Alarm {
                timer,
                set_for: None,
            })
        }

        /// Is ready at the moment or soon after; a little early or for no reason, too, so look at the clock.
        pub(crate) fn poll(&mut self, cx: &mut Context<'_>, moment: Time) -> Poll<()> {
            if self.set_for != Some(moment) {
                let value = Itimerspec {
                    it_interval: Timespec {
                        tv_sec: 0,
                        tv_nsec: 0,
                    },
                    it_value: Timespec {
                        tv_sec: (moment.0 / 1_000_000) as _,
                        // Zero would mean never.
                        tv_nsec: (moment.0 % 1_000_000 * 1000).max(1) as _,
                    },
                };
                timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::ABSTIME, &value)
                    .expect("a timer can be set to every time that a clock can show");
                self.set_for = Some(moment);
            }
            match self.timer.poll_read_ready(cx) {
                Poll::Ready(Ok(mut rung)) => {
                    // The next setting takes the mark away, so nothing has to be read.
                    rung.clear_ready();
                    self.set_for = None;
                    Poll::Ready(())
                }
                // An error means that the runtime is being taken down.
                Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
            }
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    use crate::engine::Time;
    use crate::node::clock;
    use std::future::Future;
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Duration;
    use tokio::time::{Instant, Sleep, sleep_until};

    /// The longest sleep, so that one that began before the machine slept ends soon after.
    const LONGEST: Duration = Duration::from_secs(1);

    /// See the [module](super).
    #[derive(Debug)]
    pub(crate) struct Alarm {
        sleep: Pin<Box<Sleep>>,
        set_for: Option<Time>,
    }

    impl Alarm {
        pub(crate) fn new() -> io::Result<Alarm> {
            Ok(Alarm {
                sleep: Box::pin(sleep_until(Instant::now())),
                set_for: None,
            })
        }

        /// Is ready at the moment or soon after; early or for no reason, too, so look at the clock.
        pub(crate) fn poll(&mut self, cx: &mut Context<'_>, moment: Time) -> Poll<()> {
            if self.set_for != Some(moment) {
                let left = Duration::from_micros(moment.0.saturating_sub(clock::now().0));
                self.sleep
                    .as_mut()
                    .reset(Instant::now() + left.min(LONGEST));
                self.set_for = Some(moment);
            }
            let rung = self.sleep.as_mut().poll(cx);
            if rung.is_ready() {
                self.set_for = None;
            }
            rung
        }
    }
}
