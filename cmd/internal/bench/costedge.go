package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"tidegate/testenv"
)

// costEdge is what is read where counting begins and ends. Processor times are
// in microseconds.
type costEdge struct {
	at         time.Time
	primaryCPU float64
	executed   []float64 // transactions, the primary's first, then the replicas'
	// Of the connections of Tidegate's account on all servers, as long as they
	// are open.
	dumps, probes float64
}

func readCostEdge(ctx context.Context, c *testenv.Cluster) (e costEdge, err error) {
	e.at = time.Now()
	if e.primaryCPU, err = cpuMicros(c.Primary().PID()); err != nil {
		return e, err
	}
	for _, s := range append([]*testenv.Server{c.Primary()}, c.Replicas()...) {
		set, err := executed(ctx, s)
		if err != nil {
			return e, err
		}
		e.executed = append(e.executed, float64(set.Count()))
		if err := e.addConnections(ctx, s); err != nil {
			return e, err
		}
	}
	return e, nil
}

const connectionsSQL = "SELECT THREAD_OS_ID, PROCESSLIST_COMMAND LIKE 'Binlog Dump%' FROM performance_schema.threads " +
	"WHERE PROCESSLIST_USER = ? AND THREAD_OS_ID IS NOT NULL"

// addConnections adds the processor time of the threads that serve Tidegate.
func (e *costEdge) addConnections(ctx context.Context, s *testenv.Server) (err error) {
	rows, err := s.DB().QueryContext(ctx, connectionsSQL, testenv.TidegateUser)
	if err != nil {
		return fmt.Errorf("list the connections of %s: %w", s.Name(), err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var thread int
		var dump bool
		if err := rows.Scan(&thread, &dump); err != nil {
			return err
		}
		micros, err := threadMicros(s.PID(), thread)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has just ended
		}
		if err != nil {
			return err
		}
		if dump {
			e.dumps += micros
		} else {
			e.probes += micros
		}
	}
	return rows.Err()
}

// threadMicros is the processor time that one thread has used, in microseconds;
// the kernel tells it in nanoseconds.
func threadMicros(pid, thread int) (float64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(thread) + "/schedstat")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(b), " ")
	ns, err := strconv.ParseUint(first, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("schedstat of thread %d: %w", thread, err)
	}
	return float64(ns) / 1e3, nil
}
