package host

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGiveMemoryBack(t *testing.T) { //nolint:paralleltest // memory is the process's
	t.Run("Keeper/OnlyAtRestAndOnlyWhenItHelps", func(t *testing.T) {
		const mib = 1 << 20
		var k memoryWatch
		require.False(t, k.rests(used{held: 500 * mib, allocated: 1000 * mib}), "it does not know yet whether it rests")
		require.False(t, k.rests(used{held: 500 * mib, allocated: 2000 * mib}), "at work")
		require.True(t, k.rests(used{held: 500 * mib, allocated: 2001 * mib}))
		k.gaveBack(used{held: 300 * mib, allocated: 2001 * mib})
		require.False(t, k.rests(used{held: 400 * mib, allocated: 2002 * mib}), "what lives cannot be given back")
		require.True(t, k.rests(used{held: 600 * mib, allocated: 2003 * mib}), "it was needed again meanwhile")
	})
	t.Run("Keeper/ALittleWorkKeepsNothing", func(t *testing.T) {
		const mib = 1 << 20
		var k memoryWatch
		require.False(t, k.rests(used{held: 800 * mib, allocated: 1000 * mib}))
		require.True(t, k.rests(used{held: 800 * mib, allocated: 1100 * mib}), "it needs an eighth of what it holds")
	})
	t.Run("Keeper/WhatLivedThenMayBeGarbageNow", func(t *testing.T) {
		const mib = 1 << 20
		var k memoryWatch
		now := time.Now()
		look := func(after time.Duration, held, live uint64) bool {
			now = now.Add(after)
			return k.rests(used{at: now, allocated: 1000 * mib, held: held * mib, live: live * mib})
		}
		require.False(t, look(0, 700, 300))
		require.True(t, look(lookEvery, 700, 300))
		k.gaveBack(used{at: now, allocated: 1000 * mib, held: 400 * mib, live: 300 * mib})
		require.False(t, look(lookEvery, 450, 300), "most of it is needed")
		require.False(t, look(lookEvery, 450, 50), "not so soon after the last time")
		require.True(t, look(againAfter, 450, 50), "much less lives than what is held")
		k.gaveBack(used{at: now, allocated: 1000 * mib, held: 100 * mib, live: 50 * mib})
		require.False(t, look(2*againAfter, 100, 50), "there is little to be given back")
	})
	t.Run("Keeper/OnceAtEachRest", func(t *testing.T) {
		const mib = 1 << 20
		k := memoryWatch{last: 1000 * mib, least: 300 * mib, gave: time.Now()}
		// the live heap is from before the rest
		u := used{at: k.gave, held: 300 * mib, live: 290 * mib, allocated: 1000 * mib}
		for i := 1; i < restLooks; i++ {
			require.False(t, k.rests(u), "it may go on at once")
		}
		require.True(t, k.rests(u), "what lived when it was collected last may be garbage now")
		k.gaveBack(u)
		for range 2 * restLooks {
			require.False(t, k.rests(u), "nothing has been allocated since")
		}
		u.allocated += 900 * mib
		require.False(t, k.rests(u), "at work")
		for i := 1; i < restLooks; i++ {
			require.False(t, k.rests(u))
		}
		require.True(t, k.rests(u), "at rest again")
	})
	t.Run("Keeper/LittleStays", func(t *testing.T) {
		const mib = 1 << 20
		k := memoryWatch{last: 1000 * mib, least: 60 * mib, gave: time.Now()}
		for range 2 * restLooks {
			require.False(t, k.rests(used{at: k.gave, held: 70 * mib, live: 60 * mib, allocated: 1000 * mib}))
		}
	})
	t.Run("Process/HoldsLessAfterwards", func(t *testing.T) {
		limit := debug.SetGCPercent(400) // as where there is a limit of memory
		t.Cleanup(func() { debug.SetGCPercent(limit) })
		waste := make([][]byte, 256)
		for i := range waste {
			waste[i] = make([]byte, 1<<20)
			for at := 0; at < 1<<20; at += 4096 {
				waste[i][at] = 1
			}
		}
		before := readUsed()
		runtime.KeepAlive(waste)
		debug.FreeOSMemory()
		require.Less(t, readUsed().held+200<<20, before.held)
	})
}
