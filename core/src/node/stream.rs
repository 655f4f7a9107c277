//! One connection's bytes. All of the node reads and writes through this type, so that TLS has one
//! place to come in.

use rustix::net::{RecvFlags, sockopt};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A connection to a client.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: TcpStream,
    peer: SocketAddr,
}

/// What a look at the socket has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peek {
    /// Nothing to read.
    Empty,
    /// Bytes, the end or an error, which a read will bring to light.
    Something,
}

impl Stream {
    /// Sets the socket so that small replies leave at once and a vanished host is noticed. `peer` is
    /// where it comes from.
    pub(crate) fn new(socket: TcpStream, peer: SocketAddr) -> io::Result<Stream> {
        socket.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        #[cfg(target_os = "linux")]
        {
            sockopt::set_tcp_keepidle(&socket, Duration::from_secs(10))?;
            sockopt::set_tcp_keepintvl(&socket, Duration::from_secs(3))?;
            sockopt::set_tcp_keepcnt(&socket, 3)?;
            sockopt::set_tcp_user_timeout(&socket, Duration::from_secs(10).as_millis() as u32)?;
        }
        Ok(Stream { socket, peer })
    }

    /// The address of this end, as the client sees it where nothing translates it.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    /// The address of the client's end, also when the connection is broken.
    pub(crate) fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    /// Reads into `buffer`: the number of bytes, 0 at the end. When the buffer is not filled the
    /// socket is known to be empty, so that the next call waits without asking the system again.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Writes what the socket takes now; 0 where it takes nothing.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.socket.try_write(bytes) {
            Ok(count) => Ok(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Waits until the socket takes bytes again.
    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_write_ready(cx)
    }

    /// Tells the client that nothing more comes.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    /// Looks whether there is something to read, without reading it.
    pub(crate) fn peek(&self) -> Peek {
        let mut byte = [0_u8];
        match rustix::net::recv(
            &self.socket,
            &mut byte,
            RecvFlags::PEEK | RecvFlags::DONTWAIT,
        ) {
            Err(rustix::io::Errno::WOULDBLOCK) => Peek::Empty,
            _ => Peek::Something,
        }
    }
}
