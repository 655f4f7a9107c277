// A protected resource that checks the token. A lock alone cannot stop a holder that stood still past
// the end of its lease and writes on when it wakes. The resource can: it keeps the highest token it has
// seen beside what it stores, and refuses a lower one. Here the resource is a file of this process.

import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { Client } from 'fairlock'

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'fairlock-resource-'))
const file = path.join(folder, 'resource')
fs.writeFileSync(file, '0 \n')

/**
 * Writes if the token is not older than the mark in the file. Reading the mark and writing are one step, because
 * nothing else of this process runs in between. The new file replaces the old one whole, mark and text together.
 */
function writeFenced (token, text) {
  const mark = BigInt(fs.readFileSync(file, 'utf8').split(' ')[0]) // A number would lose the last digits.
  if (token < mark) {
    console.log(`${text}: refused, a newer token has been here`)
    return false
  }
  fs.writeFileSync(`${file}.new`, `${token} ${text}\n`, { flush: true })
  fs.renameSync(`${file}.new`, file)
  console.log(`${text}: written`)
  return true
}

const client = new Client()

async function acquire (who, leaseMs) {
  const lock = await client.acquire('example:resource', { leaseMs })
  console.log(`${who}: token ${lock.token}`)
  return lock
}

// The slow writer stands still until its lease is over, and the fast one gets the lock.
const slow = await acquire('slow writer', 200)
const fast = await acquire('fast writer', 30_000)

const fastWrote = writeFenced(fast.token, 'fast writer')
const slowWrote = writeFenced(slow.token, 'slow writer')

await fast.release()
if (!await slow.release()) console.log(`slow writer: had lost the lock (${slow.lostSignal.reason.reason})`)
await client.close()
fs.rmSync(folder, { recursive: true })
if (!fastWrote || slowWrote) throw new Error('the fence did not hold')
