// An order service's part, with mysql2 and ioredis.
import mysql from "mysql2/promise";
import { Redis } from "ioredis";

// "Z": a Date is written into a DATETIME in UTC, whatever the zone of this process.
const db = mysql.createPool({ uri: process.env.DATABASE_URL, timezone: "Z" });

// With its defaults ioredis waits for ever while Redis is away.
const redis = new Redis(process.env.REDIS_URL, {
  connectTimeout: 500,
  commandTimeout: 500,
  maxRetriesPerRequest: 0,
  enableOfflineQueue: false,
});
// Without a listener each attempt to connect is printed.
redis.on("error", () => {});

/** deadline: a Date, so the row and the key have the same millisecond, if the column is a DATETIME(3) or finer. */
export async function create(orderNo, deadline) {
  // Outside a transaction the row is committed when this returns.
  await db.execute("INSERT INTO orders (order_no, status, expires_at) VALUES (?, 0, ?)", [orderNo, deadline]);
  await ifThere(writeKey(orderNo, deadline));
}

/** False: not paid by this call. Read the status, then refuse or refund. */
export async function pay(orderNo) {
  const [{ affectedRows }] = await db.execute(
    "UPDATE orders SET status = 1 WHERE order_no = ? AND status = 0 AND expires_at > UTC_TIMESTAMP(6)", [orderNo]);
  if (affectedRows === 1) await ifThere(deleteKey(orderNo));
  return affectedRows === 1;
}

/** False: there is no such unpaid order any more. */
export async function extend(orderNo, deadline) {
  const [{ affectedRows }] = await db.execute(
    "UPDATE orders SET expires_at = ? WHERE order_no = ? AND status = 0", [deadline, orderNo]);
  if (affectedRows === 1) await ifThere(writeKey(orderNo, deadline));
  return affectedRows === 1;
}

/** False: it was paid or closed before. What `close.sql` gives back, give back here, in the same transaction. */
export async function cancel(orderNo) {
  const [{ affectedRows }] = await db.execute("UPDATE orders SET status = 4 WHERE order_no = ? AND status = 0", [orderNo]);
  if (affectedRows === 1) await ifThere(deleteKey(orderNo));
  return affectedRows === 1;
}

const writeKey = (orderNo, deadline) => redis.set(`order_${orderNo}`, "", "PXAT", deadline.getTime());

const deleteKey = (orderNo) => redis.del(`order_${orderNo}`);

/** The order closes by its row, so a checkout goes on without Redis. */
const ifThere = (command) =>
  command.catch((error) => console.warn("Redis is away; the order's row is enough:", error.message));
