// What is done for each order at its deadline, the same for all: it is closed, or an entry is added to a stream of Redis.

import { Redis } from 'ioredis'
import { closeOne, connect } from './close.js'

const fires = process.env.TASK === 'fire'

/** How many are in hand at the same time; entries share one connection, as order-closer's do. */
export const HANDS = fires ? 128 : 8

/** What does it. */
export function task ({ database, redis }) {
  if (!fires) {
    const pool = connect(database, HANDS)
    return (number) => closeOne(pool, number)
  }
  const client = new Redis(redis, { maxRetriesPerRequest: null })
  return (number) => client.xadd('fired', '*', 'key', String(number))
}
