package bench

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// cores splits the processors that this process may use: one for mysqld, the
// others for everything else.
func cores() (mysqld, others unix.CPUSet, err error) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return mysqld, others, fmt.Errorf("read the processors of this process: %w", err)
	}
	if all.Count() < 2 {
		return mysqld, others, errors.New("one processor for mysqld and one for the rest are needed; this process may use one only")
	}
	others = all
	for i := range len(all) * bits.UintSize {
		if all.IsSet(i) {
			mysqld.Set(i)
			others.Clear(i)
			return mysqld, others, nil
		}
	}
	return mysqld, others, errors.New("no processor found")
}

// pin moves all threads of a process (0: this one) to the processors; threads
// and processes that those start later follow.
func pin(pid int, to *unix.CPUSet) error {
	if pid == 0 {
		pid = os.Getpid()
	}
	// Once more, for threads that were being started by others meanwhile.
	for range 2 {
		tasks, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
		if err != nil {
			return fmt.Errorf("list the threads of process %d: %w", pid, err)
		}
		for _, t := range tasks {
			tid, err := strconv.Atoi(t.Name())
			if err != nil {
				return err
			}
			if err := unix.SchedSetaffinity(tid, to); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("pin thread %d of process %d: %w", tid, pid, err)
			}
		}
	}
	return nil
}

// cpuMicros is the processor time that a process has used, in microseconds.
func cpuMicros(pid int) (float64, error) {
	// Of all its threads, ended ones included.
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	return parseStat(string(b))
}
