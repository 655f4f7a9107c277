// Servers in processes of their own, and a client that speaks the protocol by hand.
import { spawn } from 'node:child_process'
import net from 'node:net'
import { createInterface } from 'node:readline'

export class Server {
  static async start(options, environment = {}) {
    const server = new Server()
    server.process = spawn(process.env.FAIRLOCK_BIN, ['serve', '--ephemeral', ...options],
      { env: { ...process.env, ...environment }, stdio: ['ignore', 'pipe', 'ignore'] })
    server.ended = new Promise((resolve) => server.process.once('exit', resolve))
    const lines = createInterface({ input: server.process.stdout })[Symbol.asyncIterator]()
    const after = async (begin) => {
      const { value } = await lines.next()
      if (!value?.startsWith(begin)) throw new Error(`${value} does not begin with ${begin}`)
      return value.slice(begin.length)
    }
    server.address = await after('listening on ')
    server.admin = await after('admin on ')
    server.page = `http://${server.admin}/`
    return server
  }

  async kill() {
    this.process.kill('SIGKILL')
    await this.ended
  }
}

export class Client {
  static async connect(address, name) {
    const client = new Client()
    const port = Number(address.split(':').pop())
    client.socket = net.connect(port, '127.0.0.1')
    // The end of a connection is told by what is heard.
    client.socket.on('error', () => {})
    client.lines = createInterface({ input: client.socket })[Symbol.asyncIterator]()
    await client.says(`H 1 name=${spell(Buffer.from(name))}`)
    return client
  }

  send(line) { this.socket.write(line + '\n') }

  async hear() { return (await this.lines.next()).value }

  async says(line) {
    this.send(line)
    return this.hear()
  }

  async takes(key, lease = 600) {
    const answer = await this.says(`A ${spell(key)} ${lease} -`)
    if (!answer.startsWith('A ')) throw new Error(answer)
    return answer.split(' ').pop()
  }

  waits(key) { this.send(`A ${spell(key)} 600 0`) }

  close() { this.socket.destroy() }
}

// Bytes as the protocol spells them. What is no ASCII is text in UTF-8 here.
export function spell(key) {
  const text = Buffer.from(key).toString('utf8')
  return text.replace(/[\0-\x20\x7f%]/g, (letter) => '%' + letter.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0'))
}
