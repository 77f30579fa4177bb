package buildinfo

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInfo(t *testing.T) {
	t.Parallel()
	recorded := func(version string) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-01-02T04:05:06+01:00"}, {Key: "vcs.modified", Value: "true"},
		}}
	}
	for name, c := range map[string]struct {
		told     Info
		recorded *debug.BuildInfo
		want     Info
	}{
		"Told":             {Info{Version: "v1.2.3", Commit: "def", Date: "2026-05-06T07:08:09Z"}, recorded("v9.9.9"), Info{Version: "v1.2.3", Commit: "def", Date: "2026-05-06T07:08:09Z"}},
		"ToldWithoutDate":  {Info{Version: "v1.2.3", Commit: "def"}, recorded("v9.9.9"), Info{Version: "v1.2.3", Commit: "def"}},
		"ToldVersionAlone": {Info{Version: "v1.2.3"}, recorded("v9.9.9"), Info{Version: "v1.2.3", Commit: "abc", Date: "2026-01-02T03:05:06Z"}},
		"Recorded":         {Info{}, recorded("v0.2.0"), Info{Version: "v0.2.0", Commit: "abc", Date: "2026-01-02T03:05:06Z"}},
		"RecordedDevel":    {Info{}, recorded("(devel)"), Info{Version: "dev", Commit: "abc", Date: "2026-01-02T03:05:06Z"}},
		"Nothing":          {Info{}, nil, Info{Version: "dev"}},
		"NothingRecorded":  {Info{}, &debug.BuildInfo{}, Info{Version: "dev"}},
	} {
		t.Run("Complete/"+name, func(t *testing.T) {
			t.Parallel()
			c.want.Go, c.want.Platform = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
			require.Equal(t, c.want, complete(c.told, c.recorded))
		})
	}
	t.Run("Of/Linked", func(t *testing.T) {
		t.Parallel()
		got := Of("v1.2.3", "def", "2026-05-06T07:08:09Z")
		require.Equal(t, "v1.2.3", got.Version)
		require.Equal(t, "def", got.Commit)
		require.NotEmpty(t, Of("", "", "").Version)
	})
	t.Run("String/LinesOfWhatIsKnown", func(t *testing.T) {
		t.Parallel()
		i := Info{Version: "v1.2.3", Commit: "def", Date: "2026-05-06T07:08:09Z", Go: "go1.26.0", Platform: "linux/amd64"}
		require.Equal(t, "epigraph v1.2.3\ncommit   def\ndate     2026-05-06T07:08:09Z\ngo       1.26.0\nplatform linux/amd64", i.String())
		i.Commit, i.Date = "", ""
		require.Len(t, strings.Split(i.String(), "\n"), 3)
	})
}
