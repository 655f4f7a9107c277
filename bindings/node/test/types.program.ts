// Compiled by types.test.mjs, as a module of each kind; never run.

import {
  Client, ClientClosed, ConnectionFailed, FairlockError, Fence, Lock, LockLost, Refused, ReleaseUnconfirmed, Server, ServerError, StaleToken, WaitTimeout,
} from 'fairlock'
import type { AcquireOptions, ClientOptions, HeldLock, Key, KeyState, LockPage, ServerOptions, Status, TryAcquireOptions, Waiters } from 'fairlock'

export async function everything (signal: AbortSignal): Promise<void> {
  const options: ClientOptions = { servers: ['a:1', 'b:2'], name: 'n', secret: new Uint8Array(3), connectTimeoutMs: 1, retryForMs: 0, followMoves: 'listed' }
  const client = new Client(options)
  new Client()
  new Client('a:1')
  new Client(['a:1'] as const)
  const connected: Client = await Client.connect('a:1', { signal })
  const acquire: AcquireOptions = { leaseMs: 1, waitMs: 1, keepAlive: true, maxHoldMs: 1, signal, onLost: (error) => { const reason: string = error.reason; void reason } }
  const lock: Lock = await client.acquire('k', acquire)
  const key: Key = lock.key
  const token: bigint = lock.token
  const times: number[] = [lock.leaseMs, lock.remainingMs]
  const held: boolean = lock.held
  lock.lostSignal.addEventListener('abort', () => {})
  await lock.keep()
  await lock.keep({ leaseMs: 5, signal })
  const released: boolean = await lock.release()
  await lock[Symbol.asyncDispose]()
  const tried: Lock | null = await client.tryAcquire(new Uint8Array(1), { leaseMs: 1 } satisfies TryAcquireOptions)
  const seven: number = await client.withLock('k', async (lock) => { void lock.token; return 7 })
  const text: string = await client.withLock(Buffer.from('k'), { waitMs: 1 }, () => 'text')
  const state: KeyState = await client.inspect('k', { signal })
  if (state.held) { const holder: bigint = state.token; void holder } else { const nobody: null = state.token; void nobody }
  const waiters: Waiters = await client.waiters('k', { limit: 1 })
  const page: LockPage = await client.locks({ prefix: 'p', after: new Uint8Array(1), limit: 5 })
  const first: HeldLock | undefined = page.locks[0]
  const status: Status = await client.status()
  const yes: boolean = await client.release('k', token) && await client.keep('k', token, { leaseMs: 1 })
  await client.close()
  await client[Symbol.asyncDispose]()

  const settings: ServerOptions = { listen: '127.0.0.1:0', maxLeaseMs: 1, spin: 'off' }
  const server = await Server.start(settings)
  const address: string = server.address
  server.unref().ref()
  await server.stop()

  const fence = new Fence()
  fence.check('k', 1n)
  const mark: bigint | null = fence.highest('k')
  fence.forget('k')

  const error: unknown = undefined
  if (error instanceof FairlockError) { const code: string = error.code; void code }
  if (error instanceof WaitTimeout) { const code: 'ERR_WAIT_TIMEOUT' = error.code; void code }
  if (error instanceof Refused) { const reason: string = error.reason; void reason }
  if (error instanceof LockLost) { const reason: 'expired' | 'taken' | 'unconfirmed' | 'closed' = error.reason; void reason }
  void [ConnectionFailed, ReleaseUnconfirmed, StaleToken, ClientClosed, ServerError]
  void [connected, key, times, held, released, tried, seven, text, waiters, first, status, yes, address, mark]

  // @ts-expect-error: a number is no key
  await client.acquire(1)
  // @ts-expect-error: there is no such option
  await client.acquire('k', { lease: 1 })
  // @ts-expect-error: a try does not wait
  await client.tryAcquire('k', { waitMs: 1 })
  // @ts-expect-error: a token is a bigint
  await client.release('k', 1)
  // @ts-expect-error: locks come from clients
  void new Lock()
  // @ts-expect-error: a lock is what it is
  lock.token = 1n
}
