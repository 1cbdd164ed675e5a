// A reminder ten minutes before an order's deadline, with pgx: registered, moved and cancelled with the order.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v4"
	"github.com/jackc/pgx/v4/pgxpool"
)

type Timers struct {
	db *pgxpool.Pool
}

func (t *Timers) Create(ctx context.Context, orderNo int64, deadline time.Time) error {
	return t.db.BeginFunc(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO orders (order_no, status, expires_at) VALUES ($1, 0, $2)", orderNo, deadline)
		if err != nil {
			return err
		}
		return remind(ctx, tx, orderNo, deadline)
	})
}

// Extend reports whether there was still such an unpaid order.
func (t *Timers) Extend(ctx context.Context, orderNo int64, deadline time.Time) (extended bool, err error) {
	err = t.db.BeginFunc(ctx, func(tx pgx.Tx) error {
		done, err := tx.Exec(ctx, "UPDATE orders SET expires_at = $2 WHERE order_no = $1 AND status = 0", orderNo, deadline)
		if extended = err == nil && done.RowsAffected() == 1; extended {
			err = remind(ctx, tx, orderNo, deadline)
		}
		return err
	})
	return extended && err == nil, err
}

// Pay reports whether this call has paid the order.
func (t *Timers) Pay(ctx context.Context, orderNo int64) (paid bool, err error) {
	err = t.db.BeginFunc(ctx, func(tx pgx.Tx) error {
		done, err := tx.Exec(ctx, "UPDATE orders SET status = 1 WHERE order_no = $1 AND status = 0", orderNo)
		if paid = err == nil && done.RowsAffected() == 1; paid {
			cancel := "DELETE FROM order_closer_timers WHERE kind = 'reminder' AND key = $1 AND state = 'armed'"
			_, err = tx.Exec(ctx, cancel, fmt.Sprint(orderNo))
		}
		return err
	})
	return paid && err == nil, err
}

// One that is there is moved. The order's row is locked, so the last one to be registered is the right one.
func remind(ctx context.Context, tx pgx.Tx, orderNo int64, deadline time.Time) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO order_closer_timers (kind, key, due_at, target, data) VALUES ('reminder', $1, $2, 'reminders', $3)
		ON CONFLICT (kind, key) DO UPDATE SET state = 'armed', due_at = excluded.due_at`,
		fmt.Sprint(orderNo), deadline.Add(-10*time.Minute).UnixMicro(), fmt.Sprintf(`{"order": %d}`, orderNo))
	return err
}
