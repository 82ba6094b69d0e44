// Package demo is what the quickstart shows Freshet on: a Kafka broker inside the process, and orders to send
// to it.
//
//	b, err := demo.StartBroker(".freshet/broker", "")
//	defer b.Close()
//	last, err := demo.Produce(ctx, b.Addr(), 0, 200_000, 0)
//
// Guarantees: records and group offsets are in the folder when the broker is closed, and are there again when
// it is started on the folder; one process at a time uses a folder. An order is a function of its number.
//
// Non-goals: a broker for anything but demos and tests: it replicates nothing, and a crash may lose the last
// records.
package demo

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

// Topic is what the orders are sent to, in Partitions partitions.
const (
	Topic      = "orders"
	Partitions = 4
)

// ErrInUse says that another process uses the broker's folder.
var ErrInUse = errors.New("another process uses the folder")

// Broker is a Kafka broker inside the process.
type Broker struct {
	cluster *kfake.Cluster
	lock    *os.File
}

// StartBroker starts a broker that keeps its records in dir, which is made if it is not there, and listens on
// HOST:PORT; "" is a free port of 127.0.0.1. A new one has the topic of the orders. Errors: ErrInUse.
func StartBroker(dir, listen string) (*Broker, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	lock, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	opts := []kfake.Opt{kfake.NumBrokers(1), kfake.DataDir(filepath.Join(dir, "data")),
		kfake.SeedTopics(Partitions, Topic),
		kfake.ListenFn(func(network, address string) (net.Listener, error) {
			if listen != "" {
				address = listen
			}
			return net.Listen(network, address)
		})}
	if _, port, err := net.SplitHostPort(listen); err == nil {
		if number, err := strconv.Atoi(port); err == nil && number > 0 {
			opts = append(opts, kfake.Ports(number))
		}
	}
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("start broker in %s: %w", dir, err)
	}
	return &Broker{cluster, lock}, nil
}

// lockFolder takes a lock that ends with the process.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, ErrInUse)
	}
	return f, nil
}

// Addr is HOST:PORT, where it listens.
func (b *Broker) Addr() string { return b.cluster.ListenAddrs()[0] }

// Close ends the broker; its records stay in the folder.
func (b *Broker) Close() {
	b.cluster.Close()
	b.lock.Close()
}
