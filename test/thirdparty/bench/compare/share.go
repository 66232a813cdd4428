package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// sharePeriod is in how short a time a process uses up its share, and then stands still until
// the period ends.
const sharePeriod = 20 * time.Millisecond

// share gives a process so many percent of one processor, by a control group of Linux,
// as if it had a slower machine of its own. free is for when the process has ended. It
// needs root.
func share(pid, percent int) (free func() error, err error) {
	group := filepath.Join("/sys/fs/cgroup", fmt.Sprintf("delaybridge-bench-%d", pid))
	period := sharePeriod.Microseconds()
	quota := period * int64(percent) / 100
	limits := [][2]string{{"cpu.max", fmt.Sprintf("%d %d", quota, period)}}
	if _, err := os.Stat("/sys/fs/cgroup/cpu/cpu.shares"); err == nil { // Version 1: a hierarchy for each resource.
		group = filepath.Join("/sys/fs/cgroup/cpu", filepath.Base(group))
		limits = [][2]string{{"cpu.cfs_period_us", strconv.FormatInt(period, 10)}, {"cpu.cfs_quota_us", strconv.FormatInt(quota, 10)}}
	}
	if err := os.Mkdir(group, 0o755); err != nil {
		return nil, err
	}
	free = func() error { return os.Remove(group) }
	for _, limit := range append(limits, [2]string{"cgroup.procs", strconv.Itoa(pid)}) {
		// A control group has its files from the start: none must be made.
		file, err := os.OpenFile(filepath.Join(group, limit[0]), os.O_WRONLY, 0)
		if err == nil {
			_, err = file.WriteString(limit[1])
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			return nil, errors.Join(err, free())
		}
	}
	return free, nil
}
