// Other ways to close an order at its deadline, each set up as its documentation shows, with the shortest poll that it
// allows or that is usual. `fill` hears of orders ({ number, deadline } in milliseconds), by the thousand; `work` begins to close.

import amqp from 'amqplib'
import { Queue, Worker } from 'bullmq'
import { Logger, makeWorkerUtils, run } from 'graphile-worker'
import { Redis } from 'ioredis'
import PgBoss from 'pg-boss'
import { atOnce, closeOne, connect } from './close.js'
import { HANDS, task } from './task.js'

/** One UPDATE of all that is due, as often as that: at full minutes, as cron starts it, if `minutes`. */
const poll = (every, statement) => ({
  async fill () {},
  async work ({ database }) {
    const pool = connect(database, 1)
    const turn = async () => {
      let full = true
      while (full) full = (await pool.query(statement)).rowCount === 1000
      setTimeout(turn, every - (Date.now() % every))
    }
    setTimeout(turn, every - (Date.now() % every))
  }
})

const SET = 'SET status = 4, closed_at = clock_timestamp(), closures = closures + 1'

/** A job that cron starts each minute. */
export const cron = poll(60_000, `UPDATE orders ${SET} WHERE status = 0 AND expires_at <= now()`)

/** A poller each second, which passes over rows that others hold, a thousand in a transaction. */
export const poller = poll(1_000, `UPDATE orders ${SET} WHERE order_no IN (
  SELECT order_no FROM orders WHERE status = 0 AND expires_at <= now() ORDER BY expires_at LIMIT 1000 FOR UPDATE SKIP LOCKED)`)

/** Keyspace notifications of Redis alone. */
export const listener = {
  async fill ({ redis }, orders) {
    this.keys ??= new Redis(redis)
    const pipeline = this.keys.pipeline()
    for (const { number, deadline } of orders) pipeline.set(`order_${number}`, '1', 'PXAT', deadline)
    await pipeline.exec()
  },
  async work ({ redis, database }) {
    const pool = connect(database, HANDS)
    const events = new Redis(redis)
    events.on('pmessage', (_pattern, _channel, key) => closeOne(pool, key.slice('order_'.length)))
    await events.psubscribe('__keyevent@*__:expired')
  }
}

const DELAYED = 'orders.delayed'
const DUE = 'orders.due'

/** RabbitMQ: a queue in which each message has a time to live, and whose dead letters go to the queue that is consumed. */
export const rabbitmq = {
  async fill ({ amqp: url }, orders) {
    if (!this.channel) {
      const connection = await amqp.connect(url)
      this.channel = await connection.createConfirmChannel()
      await this.channel.assertQueue(DUE, { durable: true })
      const dead = { deadLetterExchange: '', deadLetterRoutingKey: DUE }
      await this.channel.assertQueue(DELAYED, { durable: true, ...dead })
    }
    for (const { number, deadline } of orders) {
      const expiration = String(Math.max(deadline - Date.now(), 0))
      this.channel.sendToQueue(DELAYED, Buffer.from(String(number)), { persistent: true, expiration })
    }
    await this.channel.waitForConfirms()
  },
  async work ({ amqp: url, database }) {
    const pool = connect(database, HANDS)
    const channel = await (await amqp.connect(url)).createChannel()
    await channel.prefetch(HANDS)
    await channel.consume(DUE, async (message) => {
      await closeOne(pool, message.content.toString())
      channel.ack(message)
    })
  }
}

/** BullMQ: a delayed job for each order. */
export const bullmq = {
  async fill ({ redis }, orders) {
    this.queue ??= new Queue('orders', { connection: new Redis(redis, { maxRetriesPerRequest: null }) })
    const opts = (deadline) => ({ delay: Math.max(deadline - Date.now(), 0), removeOnComplete: true })
    await this.queue.addBulk(orders.map(({ number, deadline }) => ({ name: 'close', data: { number }, opts: opts(deadline) })))
  },
  async work (servers) {
    const done = task(servers)
    const connection = new Redis(servers.redis, { maxRetriesPerRequest: null })
    const worker = new Worker('orders', (job) => done(job.data.number), { connection, concurrency: HANDS })
    await worker.waitUntilReady()
  }
}

/** Says nothing of each job. */
const logger = new Logger(() => () => {})

/** graphile-worker: a job for each order, to be run at its deadline; polled every half second. */
export const graphile = {
  async fill ({ database }, orders) {
    this.utils ??= await makeWorkerUtils({ connectionString: database, logger })
    const jobs = orders.map(({ number, deadline }) => ({ identifier: 'close', payload: { number }, runAt: new Date(deadline) }))
    await this.utils.addJobs(jobs)
  },
  async work (servers) {
    const done = task(servers)
    await run({
      connectionString: servers.database,
      concurrency: HANDS,
      maxPoolSize: 10,
      pollInterval: 500,
      noHandleSignals: true,
      logger,
      taskList: { close: async ({ number }) => { await done(number) } }
    })
  }
}

/** pg-boss: a job for each order, which starts after its deadline; polled every half second, the least that it takes. */
export const pgboss = {
  async fill ({ database }, orders) {
    if (!this.boss) {
      this.boss = new PgBoss({ connectionString: database })
      await this.boss.start()
      await this.boss.createQueue('orders')
    }
    await this.boss.insert(orders.map(({ number, deadline }) => ({ name: 'orders', data: { number }, startAfter: new Date(deadline) })))
  },
  async work (servers) {
    const done = task(servers)
    const work = (jobs) => atOnce(jobs, HANDS, (job) => done(job.data.number))
    await this.boss.work('orders', { batchSize: 1000, pollingIntervalSeconds: 0.5 }, work)
  }
}
