// Package measure owns the figures that no contestant can report itself: processor time and memory of process
// trees from /proc, a PostgreSQL server's use for one database, the size of its log, and the sizes of
// databases. It must not know the contestants.
package measure

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of processor times in /proc; it is the same on all Linux machines that Go runs on.
const tick = 10 * time.Millisecond

// stat is what /proc says of a process.
type stat struct {
	pid, parent int
	// own is the processor time of the process, reaped that of its children that ended.
	own, reaped time.Duration
}

func readStat(pid int) (stat, error) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return stat{}, err
	}
	end := bytes.LastIndexByte(raw, ')') // the name may hold anything
	f := strings.Fields(string(raw[end+1:]))
	if end < 0 || len(f) < 15 {
		return stat{}, fmt.Errorf("/proc/%d/stat cannot be read", pid)
	}
	n := make([]int64, 15)
	for i := 1; i < 15; i++ {
		if n[i], err = strconv.ParseInt(f[i], 10, 64); err != nil {
			return stat{}, err
		}
	}
	return stat{pid: pid, parent: int(n[1]), own: tick * time.Duration(n[11]+n[12]), reaped: tick * time.Duration(n[13]+n[14])}, nil
}

// all reads every process; processes that end meanwhile are left out.
func all() (map[int]stat, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	out := map[int]stat{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, err := readStat(pid); err == nil {
			out[pid] = s
		}
	}
	return out, nil
}

// CPU is the processor time that these processes and all their descendants have used so far.
func CPU(roots ...int) (time.Duration, error) {
	procs, err := all()
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for pid, s := range procs {
		if descends(procs, pid, roots) {
			sum += s.own + s.reaped
		}
	}
	return sum, nil
}

func descends(procs map[int]stat, pid int, roots []int) bool {
	for range 64 {
		for _, r := range roots {
			if pid == r {
				return true
			}
		}
		s, ok := procs[pid]
		if !ok || s.parent <= 1 {
			return false
		}
		pid = s.parent
	}
	return false
}

// PostgresCPU is the processor time that the server below root has used so far for some databases: their
// backends, ended processes, and shared processes (the writers and the postmaster). The backends of other
// databases are left out.
func PostgresCPU(root int, databases ...string) (time.Duration, error) {
	procs, err := all()
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for pid, s := range procs {
		if !descends(procs, pid, []int{root}) {
			continue
		}
		title, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err != nil {
			continue
		}
		// "postgres: user database host activity"; shared processes have other words there.
		words := strings.Fields(strings.TrimRight(string(bytes.ReplaceAll(title, []byte{0}, []byte{' '})), " "))
		backend := len(words) > 3 && words[0] == "postgres:" && words[1] == "postgres"
		if !backend || slices.Contains(databases, words[2]) {
			sum += s.own + s.reaped
		}
	}
	return sum, nil
}

// RssAnon is how much memory of its own a process holds, in bytes.
func RssAnon(pid int) (int64, error) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if v, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("RssAnon is not told")
}

// Files is how many bytes these files hold together with those beside them that begin with the same name, as
// the logs of SQLite do.
func Files(paths ...string) (int64, error) {
	var sum int64
	for _, p := range paths {
		matches, err := filepath.Glob(p + "*")
		if err != nil {
			return 0, err
		}
		for _, m := range matches {
			info, err := os.Stat(m)
			if err != nil {
				continue
			}
			sum += info.Size()
		}
	}
	return sum, nil
}
