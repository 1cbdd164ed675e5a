// The statement that closes an order, the same for all: under the row's lock, if it is unpaid and due by the database's clock.

import pg from 'pg'

const CLOSE = {
  name: 'close',
  text: `UPDATE orders SET status = 4, closed_at = clock_timestamp(), closures = closures + 1
         WHERE order_no = $1 AND status = 0 AND expires_at <= clock_timestamp()`
}
const REMAINING = {
  name: 'remaining',
  text: `SELECT ceil(extract(epoch FROM expires_at - clock_timestamp()) * 1000)::int AS ms FROM orders
         WHERE order_no = $1 AND status = 0`
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

export function connect (url, max) {
  return new pg.Pool({ connectionString: url, max })
}

/** Closes one order. A timer may ring a millisecond early: then its deadline is waited for. */
export async function closeOne (pool, number) {
  for (;;) {
    const { rowCount } = await pool.query({ ...CLOSE, values: [number] })
    if (rowCount > 0) return
    const { rows } = await pool.query({ ...REMAINING, values: [number] })
    if (rows.length === 0) return
    await pause(Math.max(rows[0].ms, 1))
  }
}

/** Runs `work` on each of a list, so many at the same time. */
export async function atOnce (list, hands, work) {
  let next = 0
  const hand = async () => {
    while (next < list.length) await work(list[next++])
  }
  await Promise.all(Array.from({ length: hands }, hand))
}
