// An order service's part, with pgx and redigo.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/jackc/pgx/v4/pgxpool"
)

type Orders struct {
	db    *pgxpool.Pool
	redis *redis.Pool
}

// NewOrders gives Redis half a second: an order closes by its row, so a checkout goes on without it.
func NewOrders(db *pgxpool.Pool, redisURL string) *Orders {
	limit := 500 * time.Millisecond
	dial := func() (redis.Conn, error) {
		return redis.DialURL(redisURL,
			redis.DialConnectTimeout(limit), redis.DialReadTimeout(limit), redis.DialWriteTimeout(limit))
	}
	return &Orders{db, &redis.Pool{Dial: dial, MaxIdle: 10, IdleTimeout: time.Minute}}
}

// Create gives row and key the same millisecond.
func (o *Orders) Create(ctx context.Context, orderNo int64, deadline time.Time) error {
	deadline = deadline.Truncate(time.Millisecond)
	// Outside a transaction the row is committed when this returns.
	_, err := o.db.Exec(ctx, "INSERT INTO orders (order_no, status, expires_at) VALUES ($1, 0, $2)", orderNo, deadline)
	if err == nil {
		o.writeKey(orderNo, deadline)
	}
	return err
}

// Pay reports whether this call has paid the order. If not: read the status, then refuse or refund.
func (o *Orders) Pay(ctx context.Context, orderNo int64) (bool, error) {
	return o.settle(ctx, orderNo,
		"UPDATE orders SET status = 1 WHERE order_no = $1 AND status = 0 AND expires_at > now()")
}

// Cancel reports whether this call has cancelled it. What close.sql gives back, give back here, in the same transaction.
func (o *Orders) Cancel(ctx context.Context, orderNo int64) (bool, error) {
	return o.settle(ctx, orderNo, "UPDATE orders SET status = 4 WHERE order_no = $1 AND status = 0")
}

// Extend reports whether there was still such an unpaid order.
func (o *Orders) Extend(ctx context.Context, orderNo int64, deadline time.Time) (bool, error) {
	deadline = deadline.Truncate(time.Millisecond)
	done, err := o.db.Exec(ctx, "UPDATE orders SET expires_at = $2 WHERE order_no = $1 AND status = 0", orderNo, deadline)
	if err != nil || done.RowsAffected() == 0 {
		return false, err
	}
	o.writeKey(orderNo, deadline)
	return true, nil
}

func (o *Orders) settle(ctx context.Context, orderNo int64, update string) (bool, error) {
	done, err := o.db.Exec(ctx, update, orderNo)
	if err != nil || done.RowsAffected() == 0 {
		return false, err
	}
	o.tellRedis("DEL", key(orderNo))
	return true, nil
}

func (o *Orders) writeKey(orderNo int64, deadline time.Time) {
	o.tellRedis("SET", key(orderNo), "", "PXAT", deadline.UnixMilli())
}

func (o *Orders) tellRedis(command string, arguments ...interface{}) {
	connection := o.redis.Get()
	defer connection.Close()
	if _, err := connection.Do(command, arguments...); err != nil {
		log.Printf("Redis is away; the order's row is enough: %v", err)
	}
}

func key(orderNo int64) string {
	return fmt.Sprintf("order_%d", orderNo)
}
