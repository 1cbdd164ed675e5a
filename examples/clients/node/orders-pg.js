// An order service's part, with node-postgres and node-redis.
import pg from "pg";
import { createClient } from "redis";

const db = new pg.Pool({ connectionString: process.env.DATABASE_URL });

// While Redis is away, commands fail at once instead of waiting in a queue. It connects again by itself.
const redis = createClient({ url: process.env.REDIS_URL, disableOfflineQueue: true, socket: { connectTimeout: 500 } });
// Without a listener the first error would end the process.
redis.on("error", () => {});
// Not awaited: with Redis down it goes on for ever.
redis.connect().catch(() => {});

/** deadline: a Date, so the row and the key have the same millisecond. */
export async function create(orderNo, deadline) {
  // Outside a transaction the row is committed when this returns.
  await db.query("INSERT INTO orders (order_no, status, expires_at) VALUES ($1, 0, $2)", [orderNo, deadline]);
  await writeKey(orderNo, deadline);
}

/** False: not paid by this call. Read the status, then refuse or refund. */
export async function pay(orderNo) {
  const { rowCount } = await db.query(
    "UPDATE orders SET status = 1 WHERE order_no = $1 AND status = 0 AND expires_at > now()", [orderNo]);
  if (rowCount === 1) await deleteKey(orderNo);
  return rowCount === 1;
}

/** False: there is no such unpaid order any more. */
export async function extend(orderNo, deadline) {
  const { rowCount } = await db.query(
    "UPDATE orders SET expires_at = $2 WHERE order_no = $1 AND status = 0", [orderNo, deadline]);
  if (rowCount === 1) await writeKey(orderNo, deadline);
  return rowCount === 1;
}

/** False: it was paid or closed before. What `close.sql` gives back, give back here, in the same transaction. */
export async function cancel(orderNo) {
  const { rowCount } = await db.query("UPDATE orders SET status = 4 WHERE order_no = $1 AND status = 0", [orderNo]);
  if (rowCount === 1) await deleteKey(orderNo);
  return rowCount === 1;
}

// The option must be an object: `set(key, "", "PXAT", millis)`, as ioredis has it, writes a key that never expires.
const writeKey = (orderNo, deadline) =>
  briefly(() => redis.set(`order_${orderNo}`, "", { PXAT: deadline.getTime() }));

const deleteKey = (orderNo) => briefly(() => redis.del(`order_${orderNo}`));

/** Half a second for Redis. The order closes by its row, so a checkout goes on without it. */
async function briefly(command) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(reject, 500, new Error("no answer within 500 ms"));
  });
  try {
    await Promise.race([command(), late]);
  } catch (error) {
    console.warn("Redis is away; the order's row is enough:", error.message);
  } finally {
    clearTimeout(timer);
  }
}
