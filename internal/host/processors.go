package host

import "runtime"

// processors is how many there are for this process: Go takes the CPU limit of the container into account.
var processors = runtime.GOMAXPROCS(0)

// spareThreads is how many goroutines may run at once beyond one for each processor.
const spareThreads = 2

// Processors is how many processors the process may use.
func Processors() int { return processors }

// SpareThreads lets some more goroutines run at once than there are processors, unless GOMAXPROCS says how
// many.
//
// Go lets a goroutine that computes go on for 10 ms while others wait, and those who wait go in the order in
// which they came. While one tenant keeps the processors busy, each step of another one's request waits so
// long. With a thread to spare the kernel decides instead, which lets those in who mostly wait. From now on
// the number does not follow a CPU limit that changes while the process runs.
func SpareThreads(env func(string) string) {
	if env("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(processors + spareThreads)
	}
}
