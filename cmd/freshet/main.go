// Command freshet moves the records of Kafka topics into Delta tables, each exactly once, and looks after
// such tables.
//
//	freshet quickstart
//	freshet ingest kafka://localhost:9092/orders ./lake/orders
//	freshet table read ./lake/orders --limit 5
//
// One file a command. The command wires, prints and exits; whatever it does is done by the packages below it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	tuneMemory()
	ctx, stop := untilSignal(context.Background())
	code := execute(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr})
	stop()
	os.Exit(code)
}

// sameSignal is the time within which a repeated signal is the first one once more: timeout, make and shells
// signal a process and then its group.
const sameSignal = 200 * time.Millisecond

// untilSignal returns a context that ends with the first SIGINT or SIGTERM. The second one ends the process
// at once, with exit code 130 or 143: nothing is lost by that, what was not committed will be read again.
func untilSignal(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		var first time.Time
		for {
			select {
			case s := <-signals:
				if first.IsZero() {
					first = time.Now()
				} else if time.Since(first) > sameSignal {
					os.Exit(128 + int(s.(syscall.Signal)))
				}
				cancel()
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel()
	}
}
