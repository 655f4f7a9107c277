//! One connection's bytes. All of the node reads and writes through this type, and here alone plain
//! connections and those with TLS part ways.

use super::tls;
use crate::tls::Channel;
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
    channel: Option<Box<Channel>>,
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
        Ok(Stream {
            socket,
            peer,
            channel: None,
        })
    }

    /// From now on everything goes through the channel.
    pub(crate) fn secured(self, channel: Box<Channel>) -> Stream {
        Stream {
            channel: Some(channel),
            ..self
        }
    }

    /// The socket, for what comes before a channel is open.
    pub(crate) fn socket_mut(&mut self) -> &mut TcpStream {
        &mut self.socket
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
        if let Some(channel) = &mut self.channel {
            return tls::poll_read(channel, &mut self.socket, cx, buffer);
        }
        let mut buffer = ReadBuf::new(buffer);
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Writes what the socket takes now; 0 where it takes nothing. What was not taken has to be given again, as the first bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(channel) = &mut self.channel {
            return channel.write(bytes, |records| self.socket.try_write(records));
        }
        match self.socket.try_write(bytes) {
            Ok(count) => Ok(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// How many bytes have been taken from the socket and not been read yet.
    pub(crate) fn held_plain(&self) -> usize {
        self.channel
            .as_ref()
            .map_or(0, |channel| channel.plain_bytes())
    }

    /// Waits until the socket takes bytes again.
    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_write_ready(cx)
    }

    /// Tells the client that nothing more comes.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(channel) = &mut self.channel {
            ready!(tls::poll_close(channel, &self.socket, cx))?;
        }
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    /// Looks whether there is something to read, without reading it.
    pub(crate) fn peek(&self) -> Peek {
        if self
            .channel
            .as_ref()
            .is_some_and(|channel| channel.holds_plain())
        {
            return Peek::Something;
        }
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
