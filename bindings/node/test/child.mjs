// A child process of process.test.mjs: finds the key of another process locked.

import { Client } from '../index.mjs'

const [address, key] = process.argv.slice(2)
const client = new Client(address)
console.log(await client.tryAcquire(key) === null ? 'locked' : 'free')
if (process.connected) process.disconnect()
