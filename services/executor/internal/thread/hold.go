package thread

// Hold decides whether runs may hold a thread. Both lists go from the run at the root down to the agent's own
// run. held is who has it, as far as that is known; open says whether such a run still works. A run lends the
// thread to runs that stand below it in runs, and to one of them at a time.
//
// The result is who holds it from now on, or by is the run that is in the way.
func Hold(held []string, open func(runID string) bool, runs []string) (next []string, by string) {
	for i, run := range held {
		switch {
		case !open(run):
			return runs, ""
		case i == len(runs):
			return held, "" // it is lent to a run below
		case run != runs[i]:
			return nil, run
		}
	}
	return runs, ""
}
