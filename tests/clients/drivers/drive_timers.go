// Calls what the client of timers defines, as told on standard input: a verb, an order, and mostly a deadline in milliseconds.
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
	client := &Timers{db}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var verb, answer string
		var order, millis int64
		fmt.Sscan(lines.Text(), &verb, &order, &millis)
		deadline, done, err := time.UnixMilli(millis), false, error(nil)
		switch verb {
		case "create":
			answer, err = "done", client.Create(ctx, order, deadline)
		case "extend":
			done, err = client.Extend(ctx, order, deadline)
			answer = fmt.Sprint(done)
		case "pay":
			done, err = client.Pay(ctx, order)
			answer = fmt.Sprint(done)
		}
		if err != nil {
			answer = "failed: " + err.Error()
		}
		fmt.Println("=", answer)
	}
}
