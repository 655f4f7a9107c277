//! Wakes the driver at a moment of the clock that goes on while the machine sleeps. The poll's own time-out stands
//! still meanwhile, and a lock whose lease ended during the sleep is told to be lost when the machine wakes.

pub(super) use system::Alarm;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use crate::client::session::Micros;
    use mio::unix::SourceFd;
    use mio::{Interest, Registry, Token};
    use rustix::fd::{AsRawFd, OwnedFd};
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use std::io;

    /// See the [module](super).
    pub(crate) struct Alarm {
        timer: OwnedFd,
        set_for: Micros,
    }

    impl Alarm {
        pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Alarm> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
            let fd = timer.as_raw_fd();
            registry.register(&mut SourceFd(&fd), token, Interest::READABLE)?;
            Ok(Alarm { timer, set_for: 0 })
        }

        /// The poll wakes at this moment, or earlier for nothing.
        pub(crate) fn set(&mut self, moment: Micros, now: Micros) {
            // To ring too early now and then costs less than to be set before every sleep.
            if now < self.set_for && self.set_for <= moment {
                return;
            }
            let value = Itimerspec {
                it_interval: Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                },
                it_value: Timespec {
                    tv_sec: (moment / 1_000_000) as _,
                    // Zero would mean never.
                    tv_nsec: (moment % 1_000_000 * 1000).max(1) as _,
                },
            };
            // The next setting takes the mark away that it has rung, so nothing has to be read. If it fails, the
            // poll's own time-out is still there.
            if timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &value).is_ok() {
                self.set_for = moment;
            }
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    use crate::client::session::Micros;
    use mio::{Registry, Token};
    use std::io;

    /// See the [module](super): here the poll's own time-out has to do.
    pub(crate) struct Alarm;

    impl Alarm {
        pub(crate) fn new(_: &Registry, _: Token) -> io::Result<Alarm> {
            Ok(Alarm)
        }

        pub(crate) fn set(&mut self, _: Micros, _: Micros) {}
    }
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;
    use crate::client::driver::clock;
    use mio::{Events, Poll, Token};

    #[test]
    fn the_poll_wakes_at_the_moment_without_a_time_out_of_its_own() {
        let mut poll = Poll::new().expect("descriptors");
        let mut events = Events::with_capacity(1);
        let mut alarm = Alarm::new(poll.registry(), Token(7)).expect("a descriptor");
        let begin = clock::now();
        alarm.set(begin + 3_600_000_000, begin);
        // Each is earlier than the first, and the last has passed already.
        for moment in [begin + 30_000, begin + 60_000, begin] {
            alarm.set(moment, clock::now());
            poll.poll(&mut events, None).expect("no signal");
            assert!(clock::now() >= moment);
            assert_eq!(
                events.iter().map(|event| event.token()).next(),
                Some(Token(7))
            );
        }
    }
}
