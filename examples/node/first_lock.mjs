// A first lock: take it, do the work with its token, let it go.

import { Client, WaitTimeout } from 'fairlock'

const key = 'example:order:42'

// The servers of FAIRLOCK_SERVERS, or 127.0.0.1:7420; `new Client('…')` names others.
const client = new Client()

try {
  const lock = await client.acquire(key, {
    leaseMs: 30_000, // If this process dies, others wait no longer than this.
    waitMs: 5_000,
  })
  try {
    // What is protected should be given the token, so that it can refuse an older one.
    console.log(`holding ${key}, token ${lock.token}`)
  } finally {
    await lock.release()
  }
  console.log(`released ${key}`)
} catch (error) {
  if (error instanceof WaitTimeout) console.log(`somebody else holds ${key}`)
  throw error
}
