//! Every limit of the wire, in one place. What a server lets its operator change (the longest lease,
//! numbers of keys, waiters and connections) is a setting of the node and not here.

/// The protocol version that the hello names.
pub const VERSION: u32 = 1;

/// The port a server listens on and a client connects to unless told otherwise.
pub const DEFAULT_PORT: u16 = 7420;

/// The longest line, its LF included.
pub const LINE_BYTES: usize = 4096;

/// The longest key, counted after decoding.
pub const KEY_BYTES: usize = 512;

/// The longest name of a client, counted after decoding.
pub const NAME_BYTES: usize = 128;

/// The longest secret, counted after decoding.
pub const SECRET_BYTES: usize = 512;

/// The longest address, `host:port`.
pub const ADDRESS_BYTES: usize = 255;

/// The shortest lease and the shortest limited wait, in milliseconds.
pub const TIME_MIN_MS: u64 = 1;

/// The longest time a line can name at all (a year); a server's `max_lease` is at most this.
pub const TIME_MAX_MS: u64 = 31_536_000_000;

/// The longest lease a server grants unless its settings say otherwise, in milliseconds.
pub const DEFAULT_MAX_LEASE_MS: u64 = 86_400_000;

/// Tokens are below this, so that a signed 64-bit column can hold them.
pub const TOKEN_END: u64 = 1 << 63;

/// The most rows a list or a queue request may ask for.
pub const ROWS_MAX: u32 = 100_000;
