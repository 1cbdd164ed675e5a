// A reminder ten minutes before an order's deadline, with node-postgres: registered, moved and cancelled with the order.
import pg from "pg";

const db = new pg.Pool({ connectionString: process.env.DATABASE_URL });

/** deadline: a Date. */
export const create = (orderNo, deadline) => transaction(async (tx) => {
  await tx.query("INSERT INTO orders (order_no, status, expires_at) VALUES ($1, 0, $2)", [orderNo, deadline]);
  await remind(tx, orderNo, deadline);
});

/** False: there is no such unpaid order any more. */
export const extend = (orderNo, deadline) => transaction(async (tx) => {
  const { rowCount } = await tx.query(
    "UPDATE orders SET expires_at = $2 WHERE order_no = $1 AND status = 0", [orderNo, deadline]);
  if (rowCount === 1) await remind(tx, orderNo, deadline);
  return rowCount === 1;
});

/** False: not paid by this call. */
export const pay = (orderNo) => transaction(async (tx) => {
  const { rowCount } = await tx.query("UPDATE orders SET status = 1 WHERE order_no = $1 AND status = 0", [orderNo]);
  if (rowCount === 1) {
    await tx.query("DELETE FROM order_closer_timers WHERE kind = 'reminder' AND key = $1 AND state = 'armed'", [`${orderNo}`]);
  }
  return rowCount === 1;
});

/** One that is there is moved. The order's row is locked, so the last one to be registered is the right one. */
const remind = (tx, orderNo, deadline) => tx.query(
  `INSERT INTO order_closer_timers (kind, key, due_at, target, data) VALUES ('reminder', $1, $2, 'reminders', $3)
   ON CONFLICT (kind, key) DO UPDATE SET state = 'armed', due_at = excluded.due_at`,
  [`${orderNo}`, (deadline.getTime() - 10 * 60_000) * 1000, JSON.stringify({ order: orderNo })]);

async function transaction(work) {
  const tx = await db.connect();
  try {
    await tx.query("BEGIN");
    const result = await work(tx);
    await tx.query("COMMIT");
    return result;
  } catch (error) {
    await tx.query("ROLLBACK");
    throw error;
  } finally {
    tx.release();
  }
}
