// Reads of closed orders from the stream, with redigo and pgx. Start as many as you like, each with a name of its own.
package main

import (
	"context"
	"log"
	"os"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/jackc/pgx/v4/pgxpool"
)

const stream, group = "orders:closed", "mailer"

type consumer struct {
	name string
	// An entry that a consumer has had for so many milliseconds without acknowledging it is given to another.
	abandoned string
	redis     *redis.Pool
	db        *pgxpool.Pool
}

func main() {
	ctx := context.Background()
	db, err := pgxpool.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	dial := func() (redis.Conn, error) {
		// The time limit has to be longer than a blocking read.
		return redis.DialURL(os.Getenv("REDIS_URL"), redis.DialReadTimeout(5*time.Second))
	}
	c := consumer{os.Getenv("CONSUMER"), "60000", &redis.Pool{Dial: dial}, db}
	if abandoned := os.Getenv("ABANDONED_MS"); abandoned != "" {
		c.abandoned = abandoned
	}
	for {
		if err := c.read(ctx); err != nil {
			// What was not acknowledged comes again.
			log.Printf("once more in a second: %v", err)
			time.Sleep(time.Second)
		}
	}
}

func (c *consumer) read(ctx context.Context) error {
	connection := c.redis.Get()
	defer connection.Close()
	// Each time, because a Redis that comes back empty has none. From 0: what is there already, too.
	_, err := connection.Do("XGROUP", "CREATE", stream, group, "0", "MKSTREAM")
	if err != nil && !strings.HasPrefix(err.Error(), "BUSYGROUP") {
		return err
	}
	claimed, err := redis.Values(connection.Do("XAUTOCLAIM", stream, group, c.name, c.abandoned, "0", "COUNT", 100))
	if err != nil {
		return err
	}
	if err := c.takeAll(ctx, connection, claimed[1]); err != nil {
		return err
	}
	streams, err := redis.Values(connection.Do("XREADGROUP", "GROUP", group, c.name, "COUNT", 100, "BLOCK", 1000, "STREAMS", stream, ">"))
	if err == redis.ErrNil {
		return nil
	}
	if err != nil {
		return err
	}
	// Of this one stream: its name and its entries.
	read, err := redis.Values(streams[0], nil)
	if err != nil {
		return err
	}
	return c.takeAll(ctx, connection, read[1])
}

func (c *consumer) takeAll(ctx context.Context, connection redis.Conn, reply interface{}) error {
	entries, err := redis.Values(reply, nil)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		pair, err := redis.Values(entry, nil)
		if err == redis.ErrNil {
			// Redis 6.2 shows an entry so that was cut off the stream.
			continue
		}
		if err != nil {
			return err
		}
		event, err := redis.StringMap(pair[1], nil)
		if err != nil {
			return err
		}
		if err := c.take(ctx, event); err != nil {
			return err
		}
		// After the commit: who dies in between finds the event's id next time.
		if _, err := connection.Do("XACK", stream, group, pair[0]); err != nil {
			return err
		}
	}
	return nil
}

// take does the work and notes the event's id in one transaction: when the event comes again, nothing is done twice.
func (c *consumer) take(ctx context.Context, event map[string]string) error {
	tx, err := c.db.Begin(ctx)
	if err != nil {
		return err
	}
	// Does nothing after the commit.
	defer tx.Rollback(ctx)
	seen, err := tx.Exec(ctx, "INSERT INTO seen (id) VALUES ($1) ON CONFLICT DO NOTHING", event["id"])
	if err == nil && seen.RowsAffected() == 1 {
		_, err = tx.Exec(ctx, "INSERT INTO mails (order_no) VALUES ($1::text::bigint)", event["order_id"])
	}
	if err != nil {
		return err
	}
	return tx.Commit(ctx)
}
