// A scheduled job that must run once: the same schedule wakes three workers, as it would on three
// machines. Each takes the lock; the first one runs the job and leaves a note that it has; the others
// find the note. A worker that dies on the way leaves no note, and the next one runs the job.

import { Client } from 'fairlock'

/** Stands for a row in the database, or a file beside the report. Only the holder touches it. */
const report = { done: false, runs: 0 }

async function worker () {
  const client = new Client()
  // However long the job takes.
  await client.withLock('example:nightly-report', { leaseMs: 10_000, keepAlive: true }, async () => {
    if (report.done) {
      console.log('nightly report: has run already, nothing to do')
    } else {
      console.log('nightly report: running it')
      report.runs += 1
      report.done = true
    }
  })
  await client.close()
}

await Promise.all([worker(), worker(), worker()])
console.log(`runs: ${report.runs}`)
