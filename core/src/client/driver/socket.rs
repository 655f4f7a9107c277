//! A connected socket that any thread may write to, and one at a time reads from: the driver without
//! waiting, or a blocking call that waits in the kernel. TLS would sit between this and the session: bytes go in and
//! out here and nowhere else.

use rustix::net::{RecvFlags, SendFlags};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// How long a blocking call reads its socket itself before it leaves that to the driver.
const READ_PATIENCE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    token: mio::Token,
}

impl Socket {
    /// Takes over a stream that has just been connected.
    pub(crate) fn new(stream: mio::net::TcpStream, token: mio::Token) -> io::Result<Socket> {
        let stream = TcpStream::from(stream);
        // Who does not want to wait says so with each call.
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_PATIENCE))?;
        rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
        Ok(Socket { stream, token })
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

    /// Writes what the kernel takes at once.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(rustix::net::send(&self.stream, bytes, flags)?)
    }

    /// Reads what is there.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (read, _) = rustix::net::recv(&self.stream, buffer, RecvFlags::DONTWAIT)?;
        Ok(read)
    }

    /// Reads, waiting for a moment if nothing is there.
    pub(crate) fn read_waiting(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (read, _) = rustix::net::recv(&self.stream, buffer, RecvFlags::empty())?;
        Ok(read)
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
        // It fails only if the other side has ended it already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
