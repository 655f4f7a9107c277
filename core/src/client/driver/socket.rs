//! A connected socket that any thread may write to, and one at a time reads from: the driver without
//! waiting, or a blocking call that waits in the kernel. TLS sits here and nowhere else: what goes in and out
//! is plain, what the kernel sees are records.

use crate::tls::{Channel, with_room};
use rustix::net::{RecvFlags, SendFlags};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a blocking call reads its socket itself before it leaves that to the driver.
const READ_PATIENCE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    token: mio::Token,
    /// Locked for the records of one write, or to decrypt what has been read; never while somebody waits for the kernel.
    channel: Option<Box<Mutex<Channel>>>,
}

/// What a read has brought.
pub(crate) struct Got {
    pub(crate) read: io::Result<usize>,
    /// There may be more that no event will tell of.
    pub(crate) more: bool,
}

impl Socket {
    /// Takes over a stream that has just been connected, and the channel that has been opened on it.
    pub(crate) fn new(
        stream: mio::net::TcpStream,
        channel: Option<Channel>,
        token: mio::Token,
    ) -> io::Result<Socket> {
        let stream = TcpStream::from(stream);
        // Who does not want to wait says so with each call.
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_PATIENCE))?;
        rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
        Ok(Socket {
            stream,
            token,
            channel: channel.map(|channel| Box::new(Mutex::new(channel))),
        })
    }

    /// Whether a dial has succeeded; `None` while it is under way.
    pub(crate) fn dialled(stream: &mio::net::TcpStream) -> Option<io::Result<()>> {
        match stream.take_error() {
            Ok(None) => {}
            Ok(Some(error)) | Err(error) => return Some(Err(error)),
        }
        match stream.peer_addr() {
            Ok(_) => Some(Ok(())),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => None,
            Err(error) => Some(Err(error)),
        }
    }

    pub(crate) fn dial(address: SocketAddr) -> io::Result<mio::net::TcpStream> {
        mio::net::TcpStream::connect(address)
    }

    /// Writes what the kernel takes at once. What was not taken has to be given again, as the first bytes.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.channel {
            None => send(&self.stream, bytes),
            Some(channel) => locked(channel).write(bytes, |records| send(&self.stream, records)),
        }
    }

    /// Reads what is there.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Got {
        match &self.channel {
            None => {
                let read = receive(&self.stream, buffer, RecvFlags::DONTWAIT);
                let more = matches!(read, Ok(read) if read == buffer.len());
                Got { read, more }
            }
            Some(channel) => self.read_records(channel, buffer, RecvFlags::DONTWAIT),
        }
    }

    /// Reads, waiting for a moment if nothing is there.
    pub(crate) fn read_waiting(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.channel {
            None => receive(&self.stream, buffer, RecvFlags::empty()),
            Some(channel) => self.read_records(channel, buffer, RecvFlags::empty()).read,
        }
    }

    /// What an earlier read has decrypted and had no room for. Has to be asked for after each read, because no event tells of it.
    pub(crate) fn read_held(&self, buffer: &mut [u8]) -> Option<usize> {
        let mut channel = locked(self.channel.as_ref()?);
        channel.holds_plain().then(|| channel.take_plain(buffer))
    }

    fn read_records(&self, channel: &Mutex<Channel>, buffer: &mut [u8], flags: RecvFlags) -> Got {
        loop {
            if let Some(count) = self.read_held(buffer) {
                return Got {
                    read: Ok(count),
                    more: true,
                };
            }
            if locked(channel).has_ended() {
                return Got {
                    read: Ok(0),
                    more: false,
                };
            }
            let (read, full) = with_room(|room| {
                let records = room.receive();
                let most = records.len().min(buffer.len());
                match receive(&self.stream, &mut records[..most], flags) {
                    Ok(0) => (Ok(None), false),
                    Ok(count) => {
                        let taken = locked(channel).take(room, count, buffer);
                        (taken.map(Some), count == most)
                    }
                    Err(error) => (Err(error), false),
                }
            });
            let read = match read {
                // Records, but none with something for us; there may be more of them.
                Ok(Some(0)) => continue,
                Ok(count) => Ok(count.unwrap_or(0)),
                Err(error) => Err(error),
            };
            return Got {
                more: full || locked(channel).has_ended(),
                read,
            };
        }
    }

    pub(crate) fn watch(
        &self,
        registry: &mio::Registry,
        interest: mio::Interest,
    ) -> io::Result<()> {
        let fd = self.stream.as_raw_fd();
        registry.register(&mut mio::unix::SourceFd(&fd), self.token, interest)
    }

    pub(crate) fn watch_again(
        &self,
        registry: &mio::Registry,
        interest: mio::Interest,
    ) -> io::Result<()> {
        let fd = self.stream.as_raw_fd();
        registry.reregister(&mut mio::unix::SourceFd(&fd), self.token, interest)
    }

    pub(crate) fn unwatch(&self, registry: &mio::Registry) {
        let fd = self.stream.as_raw_fd();
        // It fails only if it is not watched, and then that is what was wanted.
        let _ = registry.deregister(&mut mio::unix::SourceFd(&fd));
    }

    /// Ends the connection so that both sides know at once, also where a forked child still has the
    /// descriptor. With `reset` what has not left yet never will.
    pub(crate) fn end(&self, reset: bool) {
        if reset && rustix::net::connect_unspec(&self.stream).is_ok() {
            return;
        }
        if let Some(channel) = &self.channel {
            // If the kernel does not take it now, the end of the connection says as much.
            let _ = locked(channel).close(|records| send(&self.stream, records));
        }
        // It fails only if the other side has ended it already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// What the kernel takes at once.
fn send(stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(rustix::net::send(stream, bytes, flags)?)
}

fn receive(stream: &TcpStream, buffer: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
    let (read, _) = rustix::net::recv(stream, buffer, flags)?;
    Ok(read)
}

fn locked(channel: &Mutex<Channel>) -> MutexGuard<'_, Channel> {
    channel.lock().unwrap_or_else(PoisonError::into_inner)
}
