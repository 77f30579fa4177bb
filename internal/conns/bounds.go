package conns

import "github.com/epigraph-run/epigraph/internal/memlimit"

const (
	// maxStrangers is enough for all that come in the time in which one says who it is.
	maxStrangers = 512
	// maxOfNamespace is as many connections as a namespace may have calls under way.
	maxOfNamespace = 2000
	// connBytes is what an idle connection takes in memory, with the goroutines and buffers that wait for it.
	connBytes = 48 << 10
	// defaultBytes is what connections may take where there is no memory limit.
	defaultBytes = 512 << 20
	// fewFiles is the number of open files that is assumed where the system has no such limit to read.
	fewFiles = 1024
	// minTotal lets a few in, however little memory there is.
	minTotal = 256
)

// DefaultBounds are those for the files that this process may open and for its memory limit.
func DefaultBounds() Bounds {
	return Fit(openFiles(), memlimit.Bytes())
}

// Fit returns bounds for a number of open files and a limit of memory in bytes; 0 is none. The
// unauthenticated connections of one server may take a sixteenth of the files, the authenticated ones a half.
// With three servers in a process, five sixteenths are left for databases, files and outgoing connections.
// Authenticated connections may take a quarter of the memory.
func Fit(files uint64, limit int64) Bounds {
	room := int64(defaultBytes)
	if limit > 0 {
		room = limit / 4
	}
	total := int(min(uint64(max(room/connBytes, minTotal)), files/2))
	return Bounds{Strangers: int(min(maxStrangers, files/16)), Namespace: min(maxOfNamespace, total/2), Total: total}
}
