// One contestant as a process: `node peer.js PRODUCT`. It reads a JSON object from each line of its standard input:
// {"fill": [[number, deadline], …]} or {"work": true}, and answers each with a line when that is done.

import { createInterface } from 'node:readline'
import * as products from './products.js'

const { DATABASE: database, REDIS: redis, AMQP: amqp } = process.env
const servers = { database, redis, amqp }
const product = products[process.argv[2]]

for await (const line of createInterface({ input: process.stdin })) {
  const { fill, work } = JSON.parse(line)
  if (fill) await product.fill(servers, fill.map(([number, deadline]) => ({ number, deadline })))
  if (work) await product.work(servers)
  console.log('done')
}
