// Calls what the client defines, as told on standard input: a verb, an order, and mostly a deadline in milliseconds.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v4/pgxpool"
)

func main() {
	ctx := context.Background()
	db, err := pgxpool.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	client := NewOrders(db, os.Getenv("REDIS_URL"))
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var verb string
		var order, millis int64
		fmt.Sscan(lines.Text(), &verb, &order, &millis)
		answer, err := call(ctx, client, verb, order, time.UnixMilli(millis))
		if err != nil {
			answer = "failed: " + err.Error()
		}
		fmt.Println("=", answer)
	}
}

func call(ctx context.Context, client *Orders, verb string, order int64, deadline time.Time) (string, error) {
	if verb == "create" {
		return "done", client.Create(ctx, order, deadline)
	}
	verbs := map[string]func() (bool, error){
		"pay":    func() (bool, error) { return client.Pay(ctx, order) },
		"cancel": func() (bool, error) { return client.Cancel(ctx, order) },
		"extend": func() (bool, error) { return client.Extend(ctx, order, deadline) },
	}
	done, err := verbs[verb]()
	return fmt.Sprint(done), err
}
