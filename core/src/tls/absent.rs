//! A build without TLS: nothing here can be made, so what would be done with it needs no code.

#[cfg(feature = "server")]
use super::FileError;
use super::{ClientFiles, ConnectorError, Progress};
use std::convert::Infallible;
use std::io;

/// Never there.
#[derive(Clone, Copy, Debug)]
pub struct Channel(Infallible);

/// Of no use without a channel.
#[derive(Debug)]
pub struct Room(());

impl Room {
    /// Nothing.
    pub fn receive(&mut self) -> &mut [u8] {
        &mut []
    }
}

/// Lends a room that holds nothing.
pub fn with_room<R>(read: impl FnOnce(&mut Room) -> R) -> R {
    read(&mut Room(()))
}

#[allow(missing_docs, reason = "none of it can be called")]
impl Channel {
    pub fn handshake(
        &mut self,
        _: impl FnMut(&mut [u8]) -> io::Result<usize>,
        _: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<Progress> {
        match self.0 {}
    }

    pub fn holds_plain(&self) -> bool {
        match self.0 {}
    }

    pub fn plain_bytes(&self) -> usize {
        match self.0 {}
    }

    pub fn take_plain(&mut self, _: &mut [u8]) -> usize {
        match self.0 {}
    }

    pub fn has_ended(&self) -> bool {
        match self.0 {}
    }

    pub fn take(&mut self, _: &mut Room, _: usize, _: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }

    pub fn write(
        &mut self,
        _: &[u8],
        _: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        match self.0 {}
    }

    pub fn close(&mut self, _: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<bool> {
        match self.0 {}
    }
}

/// Never there.
#[derive(Clone, Copy, Debug)]
pub struct Connector(Infallible);

#[allow(missing_docs, reason = "none of it can be called")]
impl Connector {
    pub fn new(_: ClientFiles, _: Option<()>) -> Result<Connector, ConnectorError> {
        Err(ConnectorError::System(ABSENT.to_owned()))
    }

    pub fn channel(&self, _: &str) -> Result<Channel, String> {
        match self.0 {}
    }

    pub fn complaint(&self) -> Option<String> {
        match self.0 {}
    }

    pub fn for_this_process(&self) -> Connector {
        match self.0 {}
    }
}

const ABSENT: &str = "this build has no TLS (feature `tls`)";

#[cfg(feature = "server")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acceptor(Infallible);

#[cfg(feature = "server")]
impl Acceptor {
    pub(crate) fn new(files: super::ServerFiles) -> Result<Acceptor, FileError> {
        Err(FileError::new(&files.certificate, ABSENT))
    }

    pub(crate) fn certificate_ends(&self) -> Option<u64> {
        match self.0 {}
    }

    pub(crate) fn channel(&self) -> Result<Channel, String> {
        match self.0 {}
    }

    pub(crate) fn reload(&self, _: bool) -> Result<bool, FileError> {
        match self.0 {}
    }
}
