/// <reference types="node" />
/// <reference lib="esnext.disposable" />

/** What is locked: text, or 1 to 512 bytes. Text and its UTF-8 bytes are the same key. */
export type Key = string | Uint8Array

export interface ClientOptions {
  /**
   * One address or several, in any order; a port that is left out is 7420.
   * Default: the environment variable `FAIRLOCK_SERVERS`, else `127.0.0.1:7420`.
   */
  servers?: string | readonly string[]
  /** Shown to operators who ask who holds a lock, at most 128 bytes. Default: host name and process id. */
  name?: string
  /** What the servers want to hear before they serve: their secret, or `name:secret` of a user. Default: `FAIRLOCK_SECRET`. */
  secret?: string | Uint8Array
  /** A file with the secret; a line end after it does not count. Default: `FAIRLOCK_SECRET_FILE`. */
  secretFile?: string
  /**
   * How long one try of a connection may take, and how long a call waits when no connection is up; it also waits until each server
   * has been tried once more, which is every three seconds. Default: 3,000.
   */
  connectTimeoutMs?: number
  /** How long an acquire goes on trying after its tries are used up. Default: 0. */
  retryForMs?: number
  /** Which addresses to follow when a server says that another one is active: any, or only those in `servers`. Default: `'any'`. */
  followMoves?: 'any' | 'listed'
  /**
   * With TLS, or surely without it. By default there is TLS where `FAIRLOCK_TLS` is `true`, and as soon as one of the next
   * four options is given. With it and without `caFile` the CAs count that the system trusts.
   */
  tls?: boolean
  /** A PEM file with the CAs that have to have signed the servers' certificates. Default: `FAIRLOCK_CA_FILE`. */
  caFile?: string
  /**
   * A PEM file with the certificate that this client shows where a server asks for one. Default: `FAIRLOCK_CERT_FILE`.
   * The files are read again for new connections when they have changed.
   */
  certFile?: string
  /** A PEM file with the key of `certFile`, without a passphrase. Default: `FAIRLOCK_KEY_FILE`. */
  keyFile?: string
  /** The name that the servers' certificates have to be for, where that is not the host of each address. Default: `FAIRLOCK_SERVER_NAME`. */
  serverName?: string
}

/** Every call can be given up. It is then rejected with `signal.reason`. */
export interface CallOptions {
  signal?: AbortSignal
}

export interface TryAcquireOptions extends CallOptions {
  /**
   * How long the lock is held at most without being kept. Generous, but no longer than a dead client may block the
   * others. Default: 30,000.
   */
  leaseMs?: number
  /**
   * Renews the lock at every third of its lease, on fairlock's own thread, however long the event loop is blocked.
   * The lease has to be at least a second. Default: false.
   */
  keepAlive?: boolean
  /** After this time `keepAlive` renews no more, so that work that hangs does not hold the lock for ever. */
  maxHoldMs?: number
  /** Told once if the lock is lost; never if it is released before. The same as a listener of {@link Lock.lostSignal}. */
  onLost?: (reason: LockLost) => void
}

export interface AcquireOptions extends TryAcquireOptions {
  /** How long to wait in line; 0, the default, waits without limit. */
  waitMs?: number
}

/**
 * A client of a fairlock server or cluster. Making one does not wait for the network: connections are made and kept in
 * the background. It never keeps the process from ending.
 *
 * Methods that take time reject with `TypeError` or `RangeError` for arguments that cannot be used (before anything is sent),
 * with {@link ConnectionFailed} if no server is reached, with {@link Refused} if one says no, with {@link ClientClosed}
 * after {@link Client.close}.
 */
export class Client implements AsyncDisposable {
  /** @throws RangeError, TypeError for options that cannot be used. */
  constructor (servers?: string | readonly string[] | ClientOptions)

  /** A client that has a connection. */
  static connect (servers?: string | readonly string[] | ClientOptions, options?: CallOptions): Promise<Client>

  /**
   * Locks `key`, waiting in line for it. Keeps the process alive until it is settled.
   *
   * Aborting rejects with `signal.reason` and leaves nothing behind: the request is cancelled on the server, and a grant
   * that was on its way is released. Aborting after the grant does nothing.
   *
   * @throws {@link WaitTimeout} if the lock was not had within `waitMs`.
   *
   * @example
   * const lock = await client.acquire('order:42', { leaseMs: 30_000, waitMs: 5_000 })
   * try {
   *   await writeOrder(lock.token)
   * } finally {
   *   await lock.release()
   * }
   */
  acquire (key: Key, options?: AcquireOptions): Promise<Lock>

  /** Locks `key` if it is free at this moment: null if it is not. */
  tryAcquire (key: Key, options?: TryAcquireOptions): Promise<Lock | null>

  /**
   * Locks `key`, runs `body`, releases whatever happens, and gives what `body` gave. An error of `body` is never hidden by
   * one of the release. `signal` is about the waiting: `body` sees to itself.
   */
  withLock<T> (key: Key, body: (lock: Lock) => T | PromiseLike<T>): Promise<T>
  withLock<T> (key: Key, options: AcquireOptions | undefined, body: (lock: Lock) => T | PromiseLike<T>): Promise<T>

  /** Who holds `key`. */
  inspect (key: Key, options?: CallOptions): Promise<KeyState>

  /** Who waits for `key`: the first `limit` of them (default 1,000), and how many there are in all. */
  waiters (key: Key, options?: CallOptions & { limit?: number }): Promise<Waiters>

  /**
   * Held keys that begin with `prefix`, at most `limit` (default 1,000), from behind the key `after`. Give `next` of one page as
   * `after` of the following one, until it is null.
   */
  locks (options?: CallOptions & { prefix?: Key, after?: Key, limit?: number }): Promise<LockPage>

  /** What the node that serves this client says of itself. */
  status (options?: CallOptions): Promise<Status>

  /** Releases whatever holds `key` with `token`, also a lock of another client: for operators. False if this token does not hold it. */
  release (key: Key, token: bigint): Promise<boolean>

  /** Lets the lease of whatever holds `key` with `token` end no earlier than `leaseMs` (default 30,000) from now. False if this token does not hold it. */
  keep (key: Key, token: bigint, options?: CallOptions & { leaseMs?: number }): Promise<boolean>

  /**
   * Closes the client: what is under way is rejected at once with {@link ClientClosed}, its locks are told that they are lost, and
   * those still held are released, for at most a second.
   */
  close (): Promise<void>

  [Symbol.asyncDispose] (): Promise<void>
}

/**
 * A held lock. Who has this object holds the lock, whatever task or connection it came by. If it is garbage collected the lock is
 * released in the background; better call {@link Lock.release}.
 */
export class Lock implements AsyncDisposable {
  private constructor ()

  /** What is locked, as it was given. */
  readonly key: Key
  /** The fencing token: greater than that of every grant before. Give it to the protected resource with each write. */
  readonly token: bigint
  /** The lease by which the lock ends: that of the acquire, or of the latest `keep` that has put its end off. */
  readonly leaseMs: number
  /** How long the lock is held at least, if nobody takes it. Never too long; 0 if it is lost or released. */
  readonly remainingMs: number
  /** Whether it is held, as far as this process knows. Changes also while the event loop is blocked. */
  readonly held: boolean
  /**
   * Aborts once if the lock is lost, before anybody else can get it, with a {@link LockLost} as its reason; never if it is released before.
   * Only the `Lock` makes it do so: a program that keeps the signal alone gives up the lock.
   */
  readonly lostSignal: AbortSignal

  /**
   * Renews the lock: its lease ends no earlier than `leaseMs` (default: the lease it has) from now.
   * @throws {@link LockLost}
   */
  keep (options?: CallOptions & { leaseMs?: number }): Promise<void>

  /**
   * Releases the lock; false if it had been lost before. Sent again and again for 5 s until a server confirms it.
   * @throws {@link ReleaseUnconfirmed} if none did: only the end of the lease, or another try, will free the lock.
   */
  release (): Promise<boolean>

  /** As {@link Lock.release}; a lock that had been lost before is no error. */
  [Symbol.asyncDispose] (): Promise<void>
}

export type KeyState =
  | { held: true, waiters: number, token: bigint, remainingMs: number, name: string | null, address: string }
  | { held: false, waiters: number, token: null, remainingMs: null, name: null, address: null }

export interface Waiters {
  /** How many wait in all. */
  count: number
  /** Those at the head of the queue. */
  first: Array<{ position: number, waitedMs: number, name: string | null, address: string }>
}

export interface HeldLock {
  /** The key as text; bytes that are no text are shown as U+FFFD. */
  key: string
  keyBytes: Uint8Array
  token: bigint
  remainingMs: number
  waiters: number
  name: string | null
  address: string
}

export interface LockPage {
  locks: HeldLock[]
  /** What to give as `after` for the next page; null after the last one. */
  next: Uint8Array | null
}

export interface Status {
  role: 'starting' | 'standby' | 'active' | 'leaving'
  node: string
  active: string | null
  term: number
  held: number
  waiting: number
  connections: number
  /** Those that have a copy of its state. */
  standbys: string[]
  /** All nodes of its cluster in the order of their priority, itself included. */
  peers: string[]
}

/** Settings of a node; each is explained by `fairlock --help` under the same name. */
export interface ServerOptions {
  /** Default: `node`, or else `127.0.0.1:7420`. Port 0 takes a free one. */
  listen?: string
  dataDir?: string
  ephemeral?: boolean
  keepState?: boolean
  journalSync?: 'none' | 'batch'
  restartGraceMs?: number
  advertise?: string
  secret?: string
  secretFile?: string
  usersFile?: string
  tlsCert?: string
  tlsKey?: string
  tlsClientCa?: string
  /** Default: `'required'` where `tlsClientCa` is given. */
  tlsClientAuth?: 'off' | 'optional' | 'required'
  tlsCa?: string
  insecure?: boolean
  maxLeaseMs?: number
  maxKeys?: number
  maxWaitersPerKey?: number
  maxWaiters?: number
  maxConnections?: number
  maxWaitingPerConnection?: number
  /** A number of bytes, or text such as `'8MiB'`. */
  maxUnread?: number | string
  /** A number of bytes, or text such as `'1GiB'`. */
  maxUnreadTotal?: number | string
  maxHandshakes?: number
  /** Of the `fairlock` program; a node inside this process has no log of its own. */
  logFormat?: 'text' | 'json'
  logLevel?: string
  /** These three are of the `fairlock` program, too. */
  admin?: string
  adminSecret?: string
  adminSecretFile?: string
  helloTimeoutMs?: number
  idleTimeoutMs?: number
  reattachGraceMs?: number
  /** The nodes of a cluster in the order of their priority; the same list on each of them. As text with commas between them. */
  peers?: string | readonly string[]
  /** Which of them this is. */
  node?: string
  clusterSecret?: string
  clusterSecretFile?: string
  heartbeatMs?: number
  failureTimeoutMs?: number
  discoveryTimeoutMs?: number
  preempt?: boolean
  preemptDelayMs?: number
  parkTimeoutMs?: number
  takeoverGraceMs?: number
  syncStandbys?: number
  syncStrict?: boolean
  drainTimeoutMs?: number
  /** `'auto'`, `'off'` or a number of microseconds. */
  spin?: 'auto' | 'off' | number
}

/** A node inside this process, for tests and for programs that bring their own. It keeps the process alive until it is stopped. */
export class Server implements AsyncDisposable {
  private constructor ()

  /**
   * Starts a node and waits until it serves, or as one of a cluster until it takes connections.
   * @throws RangeError, TypeError for settings that cannot be used, {@link ServerError} for what the machine refuses.
   */
  static start (options?: ServerOptions): Promise<Server>

  /**
   * An address of this machine that nobody else gets until a node of this process listens there, so that the nodes of a cluster
   * can be told of each other before the first one starts. Another one each time.
   */
  static freeAddress (): string

  /** Where it listens, with the port that was found. */
  readonly address: string
  /** Stops it in order: it hands over to another node of its cluster. Resolves when it has ended. */
  stop (): Promise<void>
  /** Ends it at once, as if its process had been killed: nobody is told and nothing is handed over. */
  kill (): Promise<void>
  /** Lets it keep the process alive (as it does to begin with). */
  ref (): this
  /** Lets the process end although it runs. */
  unref (): this

  [Symbol.asyncDispose] (): Promise<void>
}

/**
 * For the protected resource: remembers the highest token seen of each key and refuses smaller ones. This one lives in memory; where
 * the resource outlives the process, keep the mark in the resource itself.
 */
export class Fence {
  constructor ()

  /**
   * Lets the token pass if it is at least the highest one seen of `key`.
   * @throws {@link StaleToken}
   */
  check (key: Key, token: bigint): void
  /** The highest token seen, or null. */
  highest (key: Key): bigint | null
  /** Forgets a key whose resource is gone. */
  forget (key: Key): void
}

/** What all errors of this package have in common, but for wrong arguments: those are `TypeError` and `RangeError`. */
export class FairlockError extends Error {
  readonly code: string
}

/** The lock was not had within `waitMs`. Nothing is left behind on the server. */
export class WaitTimeout extends FairlockError {
  readonly code: 'ERR_WAIT_TIMEOUT'
}

/** No server was reached, or none of those reached is active. The message names each address and what went wrong there. */
export class ConnectionFailed extends FairlockError {
  readonly code: 'ERR_CONNECTION_FAILED'
}

/** The server refused and did nothing. */
export class Refused extends FairlockError {
  readonly code: 'ERR_REFUSED'
  /** `auth`, `denied`, `busy`, `version`, `internal`, … */
  readonly reason: string
}

/** The lock was lost. */
export class LockLost extends FairlockError {
  readonly code: 'ERR_LOCK_LOST'
  readonly reason: 'expired' | 'taken' | 'unconfirmed' | 'closed'
}

/** No server confirmed a release within 5 s. */
export class ReleaseUnconfirmed extends FairlockError {
  readonly code: 'ERR_RELEASE_UNCONFIRMED'
}

/** A {@link Fence} has seen a higher token: whoever comes with this one no longer holds the lock. */
export class StaleToken extends FairlockError {
  readonly code: 'ERR_STALE_TOKEN'
}

/** The client has been closed. */
export class ClientClosed extends FairlockError {
  readonly code: 'ERR_CLOSED'
}

/** A {@link Server} could not start, or had to end: the address is taken, the data dir cannot be used, … */
export class ServerError extends FairlockError {
  readonly code: 'ERR_SERVER'
}
