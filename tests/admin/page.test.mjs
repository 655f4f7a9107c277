// The admin page in a real browser. What it is made of is tested with the server, in server/tests/cli/admin.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { pathToFileURL } from 'node:url'
import { Client, Server } from './nodes.mjs'

const { chromium } = await import(pathToFileURL(process.env.FAIRLOCK_PLAYWRIGHT))
const LIMIT = 30_000
const HOSTILE = [
  '<img src=x onerror="window.harmed = 1">', '</script><script>window.harmed = 2</script>', '"><svg onload=harmed=3>',
  '\u202egnp.exe', 'a\0b\r\nc', '{{nonce}}', 'x'.repeat(255), '${harmed = 4}', 'javascript:harmed=5', '🔒 café',
]
let context
const contexts = []

async function browse(options = {}) {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'fairlock-browser-'))
  const flags = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync']
  const made = await chromium.launchPersistentContext(folder, { executablePath: process.env.FAIRLOCK_CHROMIUM, headless: true, args: flags, ...options })
  made.setDefaultTimeout(LIMIT)
  contexts.push([made, folder])
  return made
}
before(async () => { context = await browse({ viewport: { width: 1180, height: 900 } }) }, { timeout: LIMIT })
after(async () => {
  for (const [made, folder] of contexts) {
    await made.close()
    rmSync(folder, { recursive: true, force: true })
  }
})

// A page that has to be quiet: nothing in the console, nothing from elsewhere, no dialog.
async function open(server, within = context, url = server.page) {
  const page = await within.newPage()
  const heard = []
  page.on('console', (message) => heard.push(`console: ${message.text()}`))
  page.on('pageerror', (error) => heard.push(`error: ${error}`))
  page.on('dialog', (dialog) => { heard.push(`dialog: ${dialog.message()}`); dialog.dismiss() })
  page.on('request', (request) => {
    const { origin, protocol } = new URL(request.url())
    if (protocol !== 'data:' && origin !== new URL(server.page).origin) heard.push(`request: ${request.url()}`)
  })
  await page.goto(url)
  return { page, heard }
}
const text = (page, id) => page.locator(`#${id}`).innerText()
const becomes = (page, id, expected) => page.waitForFunction(([id, expected]) => document.getElementById(id).innerText.includes(expected), [id, expected])
const tile = (page, name) => page.locator('.tile', { hasText: name }).locator('.value')

test('the page shows what is held and waited for, by whom, and goes on doing so', { timeout: LIMIT }, async (t) => {
  const server = await Server.start(['--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0'])
  t.after(() => server.kill())
  const holder = await Client.connect(server.address, 'billing on host-1')
  await holder.takes('order:1')
  await holder.takes('order:2')
  const waiter = await Client.connect(server.address, 'billing on host-2')
  waiter.waits('order:2')
  const { page, heard } = await open(server)
  await becomes(page, 'live', 'live')
  assert.equal(await text(page, 'role'), 'active')
  assert.equal(await text(page, 'node'), server.address)
  assert.equal(await text(page, 'cluster-hint'), 'This node is alone.')
  await becomes(page, 'oldest', 'billing on host-1')
  assert.match(await text(page, 'oldest'), /order:1[^]*127\.0\.0\.1:\d+[^]*(\d s|\d ms)[^]*9 min \d+ s/)
  await becomes(page, 'queues', 'order:2')
  assert.equal(await tile(page, 'Keys held').innerText(), '2')
  assert.equal(await tile(page, 'Requests waiting').innerText(), '1')

  await holder.takes('order:3')
  await page.waitForFunction(() => [...document.querySelectorAll('.tile')].some((tile) => tile.innerText.includes('Keys held\n3')))
  await page.fill('#prefix', 'order:')
  await page.keyboard.press('Enter')
  await becomes(page, 'found', '3 locks, as of')
  await page.locator('#locks button', { hasText: 'order:2' }).click()
  await becomes(page, 'waiters', 'billing on host-2')
  waiter.close()
  await becomes(page, 'waiters', 'Nobody waits for it.')
  await page.locator('#close').click()
  assert.equal(await page.locator('#queue').isHidden(), true)
  assert.deepEqual(heard, [])
  holder.close()
})

test('keys and names that mean harm are shown and do none', { timeout: LIMIT }, async (t) => {
  const server = await Server.start(['--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0'])
  t.after(() => server.kill())
  for (const hostile of HOSTILE) {
    const client = await Client.connect(server.address, Buffer.from(hostile).subarray(0, 128).toString())
    await client.takes(hostile)
    client.waits(hostile)
    t.after(() => client.close())
  }
  const { page, heard } = await open(server)
  await becomes(page, 'live', 'live')
  const shown = HOSTILE.map((key) => key.replace(/[\0\r\n\u202e]/g, (letter) => `\\u{${letter.codePointAt(0).toString(16)}}`))
  const brief = shown.map((key) => key.length > 100 ? `${key.slice(0, 79)}…${key.slice(-20)}` : key)
  const inList = (id) => page.waitForFunction(([id, keys]) => {
    const texts = [...document.querySelectorAll(`#${id} button.key`)].map((button) => button.textContent)
    return keys.every((key) => texts.includes(key))
  }, [id, brief])
  await inList('oldest')
  await inList('queues')
  await page.locator('#search button').click()
  await inList('locks')
  for (const [at, key] of shown.entries()) {
    await page.locator('#locks button.key').getByText(brief[at], { exact: true }).click()
    await page.waitForFunction((key) => document.getElementById('queue-key').textContent === key, key)
    await becomes(page, 'queue-count', '1 request')
  }
  const found = await page.evaluate(() => ({
    harmed: window.harmed, images: document.images.length, scripts: document.scripts.length,
    handlers: [...document.querySelectorAll('*')].filter((one) => [...one.attributes].some(({ name }) => name.startsWith('on'))).length,
    wide: document.documentElement.scrollWidth > window.innerWidth,
  }))
  assert.deepEqual(found, { harmed: undefined, images: 0, scripts: 1, handlers: 0, wide: false })
  assert.deepEqual(heard, [])
  // And if something could be put in all the same, it would not run.
  await page.evaluate(() => {
    const script = document.createElement('script')
    script.textContent = 'window.harmed = 6'
    document.body.append(script)
    document.body.insertAdjacentHTML('beforeend', '<b onclick="window.harmed = 7" id="bait">x</b>')
    document.getElementById('bait').click()
  })
  assert.equal(await page.evaluate(() => window.harmed), undefined)
})

test('what is spelled out looks like no other key', { timeout: LIMIT }, async (t) => {
  const server = await Server.start(['--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0'])
  t.after(() => server.kill())
  const client = await Client.connect(server.address, 'anybody')
  t.after(() => client.close())
  for (const key of ['\u202ex', '\\u{202e}x', 'hex ff00', '\\hex{ff00}']) await client.takes(key)
  client.socket.write(Buffer.from('A \xff%00 600 -\n', 'latin1'))
  assert.match(await client.hear(), /^A /)
  const { page } = await open(server)
  const expected = ['\\u{202e}x', '\\\\u{202e}x', 'hex ff00', '\\\\hex{ff00}', '\\hex{ff00}'].sort()
  await page.waitForFunction((expected) => {
    const texts = [...document.querySelectorAll('#oldest button.key')].map((button) => button.textContent).sort()
    return JSON.stringify(texts) === JSON.stringify(expected)
  }, expected)
})

test('the page says when the node cannot be reached, and goes on when it can', { timeout: LIMIT }, async (t) => {
  let server = await Server.start(['--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0'])
  t.after(() => server.kill())
  const { page } = await open(server)
  await becomes(page, 'live', 'live')
  await server.kill()
  await becomes(page, 'live', 'not reached')
  assert.equal(await text(page, 'role'), 'was active')
  assert.equal(await page.title(), `not reached · ${server.address} · fairlock`)
  assert.match(await text(page, 'trouble'), /cannot be reached \(no connection\)\. What is shown is of/)
  server = await Server.start(['--listen', server.address, '--admin', server.admin])
  await becomes(page, 'live', 'live')
  assert.equal(await page.locator('#trouble').isHidden(), true)
})

test('a page that nobody sees asks for nothing', { timeout: LIMIT }, async (t) => {
  const server = await Server.start(['--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0'])
  t.after(() => server.kill())
  const { page } = await open(server)
  await becomes(page, 'live', 'live')
  const hide = (hidden) => page.evaluate((hidden) => {
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden })
    document.dispatchEvent(new Event('visibilitychange'))
  }, hidden)
  await hide(true)
  await becomes(page, 'live', 'paused')
  // What was under way may still come; after that three turns are let pass.
  await page.waitForTimeout(500)
  let asked = 0
  page.on('request', () => { asked += 1 })
  await page.waitForTimeout(3000)
  assert.equal(asked, 0)
  await hide(false)
  await becomes(page, 'live', 'live')
})

test('with the secret in its browser the page works as without one', { timeout: LIMIT }, async (t) => {
  const server = await Server.start(['--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0'], { FAIRLOCK_ADMIN_SECRET: 'open sesame' })
  t.after(() => server.kill())
  const known = await browse({ httpCredentials: { username: 'anybody', password: 'open sesame' } })
  const { page } = await open(server, known)
  await becomes(page, 'live', 'live')
})

test('a cluster, on a screen and on a phone, by day and by night', { timeout: 2 * LIMIT }, async (t) => {
  const addresses = await free(3)
  const nodes = []
  t.after(() => Promise.all(nodes.map((node) => node.kill())))
  for (const address of addresses) {
    nodes.push(await Server.start(['--peers', addresses.join(), '--node', address, '--admin', '127.0.0.1:0']))
  }
  const { page, heard } = await open(nodes[0])
  await becomes(page, 'cluster-hint', '2 of 2 others could take over.')
  const stop = await load(addresses[0])
  t.after(stop)
  // Until the lines have something to show.
  await page.waitForFunction(() => (document.querySelector('.tile path.line').getAttribute('d') ?? '').split('L').length > 12)
  const folder = process.env.FAIRLOCK_SCREENSHOTS
  for (const [place, size] of [['screen', { width: 1180, height: 900 }], ['phone', { width: 375, height: 800 }]]) {
    for (const colorScheme of ['light', 'dark']) {
      await page.setViewportSize(size)
      await page.emulateMedia({ colorScheme })
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)
      assert.ok(wide <= 0, `${place}: ${wide} too wide`)
      const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number))
      assert.equal(ground.every((part) => part > 128), colorScheme === 'light')
      await page.screenshot({ path: path.join(folder, `admin-${place}-${colorScheme}.png`), fullPage: place === 'phone' })
    }
  }
  await nodes[2].kill()
  await page.waitForFunction(() => [...document.querySelectorAll('#nodes tr')].some((row) => row.innerText.includes('down')))
  await becomes(page, 'cluster-hint', '1 of 2 others could take over.')
  assert.deepEqual(heard, [])
  const { page: other } = await open(nodes[1])
  await becomes(other, 'role', 'standby')
  await becomes(other, 'cluster-hint', `${addresses[0]} is active.`)
  assert.match(await other.locator('.tile', { hasText: 'Requests waiting' }).innerText(), /at the active node/)
})

// Clients that take and give back, some of them in line for the same keys.
async function load(address) {
  const keys = ['order:4711', 'order:4712', 'invoice:2026-11', 'nightly-report', 'ledger:eur', 'ledger:usd']
  const clients = []
  let goesOn = true
  const keeper = await Client.connect(address, 'backup@db-1')
  clients.push(keeper)
  await keeper.takes('backup:db-1')
  await keeper.takes('leader:scheduler', 30)
  const worker = async (number) => {
    const client = await Client.connect(address, `worker-${number}@app-${number % 3}`)
    clients.push(client)
    while (goesOn) {
      const key = keys[Math.floor(keys.length * Math.random() ** 2)]
      const answer = await client.says(`A ${key} 30 60`)
      const token = answer?.split(' ')[2]
      if (token === undefined) return
      await new Promise((resolve) => setTimeout(resolve, 20 * Math.random()))
      if (await client.says(`R ${key} ${token}`) === undefined) return
    }
  }
  for (let number = 0; number < 24; number += 1) worker(number).catch(() => {})
  return () => {
    goesOn = false
    clients.forEach((client) => client.close())
  }
}

// Ports that were free a moment ago; all at once, so that they differ.
async function free(many) {
  const { createServer } = await import('node:net')
  const servers = Array.from({ length: many }, () => createServer().listen(0, '127.0.0.1'))
  await Promise.all(servers.map((server) => new Promise((resolve) => server.once('listening', resolve))))
  const addresses = servers.map((server) => `127.0.0.1:${server.address().port}`)
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))))
  return addresses
}
