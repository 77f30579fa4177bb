package meaning

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// edges returns the links of a reading as "1>2 2>3".
func edges(r *Reading) string {
	var out []string
	for _, l := range r.Links {
		out = append(out, l.From+">"+l.To)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestProse(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"English": {"First we clear the attic. Then Tom lays the cables; meanwhile Ann paints the beams. Once both are done we move the desks up.", "1>2 1>3 2>4 3>4"},
		"German":  {"Zuerst räumen wir den Speicher aus. Danach verlegt Tom die Kabel, währenddessen streicht Anna die Balken. Sobald beide fertig sind, tragen wir die Tische hoch.", "1>2 1>3 2>4 3>4"},
		"Spanish": {"Primero vaciamos el desván. Luego Tomás tiende los cables; al mismo tiempo Ana pinta las vigas. Por último subimos las mesas.", "1>2 1>3 2>4 3>4"},
		"Verb":    {"Priya sets up the cluster. As soon as that is up, Marco loads the data. Once the data is loaded, Ana runs the tests.", "1>2 2>3"},
		"AndThen": {"Once the cake is baked we cool it on the rack, and then Ann whips the cream. Finally we stack the layers.", "1>2 2>3"},
		"Before":  {"Before we pour the concrete, we nail the formwork together, and before that we dig the trench. Last of all we clean up.", "1>4 2>1 3>2"},
		"Gerund":  {"After collecting the receipts, enter them in the sheet. Then send the summary.", "1>2 2>3"},
		"Trails":  {"Zuerst räumen wir den Keller aus. Danach werden die Wände gestrichen, während gleichzeitig das Regal gebaut wird. Sobald beides fertig ist, ziehen wir ein.", "1>2 1>3 2>4 3>4"},
		"Small":   {"first we borrow the crate, then we catch the cat. after that we drive her over. at the very end we pay the bill.", "1>2 2>3 3>4"},
		"Turkish": {"Önce modeli eğitin. Ardından faturaları temizleyin. Bu sırada satış rakamlarını temizleyin. İkisi de bitince raporu yazın.", "1>2 1>3 2>4 3>4"},
		"Chinese": {"先备份数据库,同时通知用户。这两项都完成后停机。然后升级系统。", "1>3 2>3 3>4"},
		"Branch":  {"First we sign the lease. Meanwhile Ann orders the desks, and then she paints them. Finally we move in.", "1>4 2>3 3>4"},
		"Abreast": {"Getting the loan and settling the boundary can run side by side. Once both are done we break the ground. Finally we plant the hedge.", "1>3 2>3 3>4"},
		"Free":    {"First we clear the attic. Then Tom lays the cables. Ann can order the desks at any time. Finally everything is carried upstairs.", "1>2 2>4 3>4"},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			all := readProse(form.NewSource(c.text))
			require.Len(t, all, 1)
			require.Equal(t, c.want, edges(all[0]))
		})
	}
}

func TestLabelsInProse(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"Codes": {"T1 fetches the satellite tiles. T2 corrects the clouds and needs T1. T3 merges the two, so it has to wait for T1 and T2.", "T1>T2 T1>T3 T2>T3"},
		"Names": {"The pipeline has four tasks: ingest, dedupe, enrich and notify. dedupe needs ingest. enrich needs dedupe. notify needs enrich and dedupe.", "dedupe>enrich dedupe>notify enrich>notify ingest>dedupe"},
	} {
		t.Run(name, func(t *testing.T) {
			all := readLabeled(form.NewSource(c.text))
			require.Len(t, all, 1)
			require.Equal(t, c.want, edges(all[0]))
		})
	}
}

// Text outside of all steps is reported, so that nothing is lost silently.
func TestProseReportsSkippedText(t *testing.T) {
	all := readProse(form.NewSource("First we clear the attic. It has been a mess for years. Then Tom lays the cables. Finally we paint the beams."))
	require.Len(t, all, 1)
	require.True(t, slices.ContainsFunc(all[0].Notes, func(n Note) bool { return strings.Contains(n.Message, "a mess for years") }))
}

func TestProseIsNoPlan(t *testing.T) {
	for name, text := range map[string]string{
		"Essay":   "L'essai défend trois thèses : d'abord, que la langue change ; ensuite, que nul ne la gouverne ; enfin, qu'il faut s'en réjouir. L'auteur conclut sans trancher.",
		"Poem":    "First comes the rain, then comes the light,\nthen comes the fox on the edge of the night;\nafter the fox, the hush of the field,\nafter the hush, what the furrows will yield.",
		"Refusal": "I'm sorry, but I can't help with that. First you should ask a lawyer, then a friend, and finally the police.",
		"Minutes": "Protokoll: Wir haben den Verzug besprochen, Carla hat die Zahlen gezeigt, und es wurde beschlossen, das Thema zu vertagen.",
		"Report":  "The team finished the login page and then moved on to the export. After the review, two bugs were found. Finally the release went out at noon.",
		"French":  "Hier, nous avons visité le musée. D'abord, le guide nous a montré les salles, puis nous avons déjeuné. Enfin, le car nous a ramenés.",
		"Bericht": "Am Montag haben wir zuerst die Server heruntergefahren. Danach hat Klaus die Platten getauscht. Anschließend wurde das System neu gestartet.",
		"How":     "What is called a handshake opens the line. First the client sends a segment; then the server replies; finally the client answers.",
		"Story":   "He was born in Leeds and grew up by the sea. After school he worked on trawlers, then in a bank. Later he moved to Oslo, where he was finally happy.",
	} {
		t.Run(name, func(t *testing.T) {
			for _, r := range readProse(form.NewSource(text)) {
				require.Less(t, r.Weight, 30)
			}
		})
	}
}

// amended applies a correction to a list of four steps. Without links the steps are in listed order.
func amended(correction string, links ...Link) *Reading {
	r := &Reading{Links: slices.Clone(links), Stated: len(links) > 0}
	for _, id := range []string{"1", "2", "3", "4"} {
		r.Items = append(r.Items, Item{ID: id, Title: "x", Parent: -1})
	}
	amend(form.NewSource(correction), r, correction, 0, true)
	return r
}

func TestCorrections(t *testing.T) {
	chain := []Link{{From: "1", To: "2"}, {From: "2", To: "3"}, {From: "3", To: "4"}}
	tests := map[string]struct {
		text  string
		links []Link
		want  string
	}{
		"Before":  {"Scratch that, step 3 comes before step 2.", nil, "1>3 2>4 3>2"},
		"Swapped": {"Moment: 2 und 3 gehören vertauscht.", nil, "1>3 2>4 3>2"},
		"Only":    {"Actually 3 does not wait for 2, it only needs 1.", chain, "1>2 1>3 3>4"},
		"Instead": {"Step 4 needs 2 instead of 3.", chain, "1>2 2>3 2>4"},
		"Drop":    {"Koreksi: langkah 3 dihapus.", chain, "1>2 2>4"},
		"Add":     {"Add step 5: call Ann. Step 4 can't start without it.", chain, "1>2 2>3 3>4 5>4"},
		"Move":    {"On second thought, move step 4 right after step 1.", nil, "1>4 2>3 4>2"},
		"Between": {"Insert step 9 between 2 and 3: compact the gravel.", nil, "1>2 2>9 3>4 9>3"},
		"Abreast": {"Actually, 2 and 3 can happen in parallel.", nil, "1>2 1>3 2>4 3>4"},
		"Pronoun": {"Edit: 3 turned out to be unnecessary, skip it.", chain, "1>2 2>4"},
		"Adverb":  {"Correction: 4 also depends on 2.", chain, "1>2 2>3 2>4 3>4"},
		"Order":   {"Endgültig gilt also 1, 3, 2, 4, strikt nacheinander.", nil, "1>3 2>4 3>2"},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, edges(amended(c.text, c.links...)))
		})
	}
	t.Run("NotUnderstood", func(t *testing.T) {
		r := amended("Oh wait, 3 is rubbish somehow.")
		require.NotEmpty(t, r.Notes)
		require.Contains(t, r.Notes[0].Element, "3")
	})
}

func TestAlternatives(t *testing.T) {
	const lists = "Option A: boat\n1. rent\n2. sail\n\nOption B: train\n1. book\n2. ride\n\n"
	for text, want := range map[string]int{
		"We go with option B.": 1, "Forget B, it is too expensive.": 0, "Option A is off the table.": 1, "Both are nice.": -1,
		"I recommend option B because it keeps the trip to a minimum.": 1,
	} {
		alts, chosen := alternatives(form.NewSource(lists + text))
		require.Len(t, alts, 2)
		require.Equal(t, want, chosen, text)
	}
	for text, want := range map[string]int{
		"Primary plan:\n1. Fly\n2. Sail\n\nBackup plan:\n1. Drive\n2. Sail\n\nWe stick to the primary plan.":             0,
		"First we take the grand route. Both are below.\n\nQuick route\n- rent\n- sail\n\nGrand route\n- book\n- ride\n": 1,
		"Plan inicial:\n- P1: Alquilar\n- P2: Pintar\n\nPlan corregido:\n- P1: Alquilar\n- P2: Comprar\n":                1,
		"Optie A: huren\nA1. bellen\nA2. tekenen\n\nOptie B: kopen\nB1. regelen\nB2. zoeken\n\nWe gaan voor optie B.":    1,
	} {
		_, chosen := alternatives(form.NewSource(text))
		require.Equal(t, want, chosen, text)
	}
	alts, _ := alternatives(form.NewSource("Plan:\n1. rent\n2. sail\n"))
	require.Empty(t, alts)
}

func TestNotPlan(t *testing.T) {
	tests := map[string]struct {
		list listing
		no   bool
	}{
		"Questions":   {listing{Intro: "Before I can plan:", Entries: []string{"How many guests?", "Where?"}}, true},
		"Ingredients": {listing{Lang: "en", Headings: []string{"Ingredients"}, Entries: []string{"2 eggs", "200 g flour"}}, true},
		"Minutes":     {listing{Lang: "es", Headings: []string{"Acta de la reunión"}, Entries: []string{"Se aprobó el acta.", "El presidente informó."}}, true},
		"Prices":      {listing{Lang: "de", Intro: "Unsere Preisliste:", Entries: []string{"Ölwechsel – 40 €", "Reifen – 20 €"}}, true},
		"Steps":       {listing{Lang: "en", Intro: "Here is the plan:", Entries: []string{"Book the hall", "Invite people"}}, false},
		"Names":       {listing{Lang: "en", Intro: "What I like about my town:", Entries: []string{"the fish market", "the cats on the boats", "silence at three"}}, true},
		"NamedSteps":  {listing{Lang: "en", Intro: "The steps:", Entries: []string{"fish market", "cats on the boats", "silence at three"}}, false},
		"Statements":  {listing{Lang: "ko", Entries: []string{"제주도는 가장 큰 섬입니다.", "한라산은 높은 산입니다."}}, true},
		"Will":        {listing{Lang: "en", Entries: []string{"The clerk will look up the file", "The judge will read it"}, Linked: true}, false},
		"Done":        {listing{Lang: "en", Entries: []string{"Finished the retry logic", "Reviewed the migration", "On vacation"}}, true},
		"DoneEs":      {listing{Lang: "es", Entries: []string{"Creé el repositorio", "Corregí los errores", "Publiqué la versión"}}, true},
		"Features":    {listing{Lang: "es", Boxes: true, Checked: true, Entries: []string{"Cuaderno de campo digital", "Avisos por SMS", "Mapas sin conexión"}}, true},
		"CheckedDo":   {listing{Lang: "en", Boxes: true, Checked: true, Entries: []string{"Freeze the schema", "Write the importer"}}, false},
		"Version":     {listing{Lang: "en", Headings: []string{"[3.4.0] - 2025-02-11", "Added"}, Entries: []string{"Support for Podman 5", "Quiet mode"}}, true},
		"Declined":    {listing{Lang: "de", Intro: "Dabei kann ich leider nicht helfen.", Entries: []string{"Tipps zum WLAN", "eine Erklärung"}}, true},
		"Signatures":  {listing{Lang: "en", Entries: []string{"add(task) – registers a task", "run() – runs everything after add"}, Related: 1}, true},
		"Related":     {listing{Lang: "en", Intro: "My results so far:", Entries: []string{"Hall", "Music (after 1)"}, Related: 1, Nouns: true}, false},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			score, why := notPlan(&c.list)
			require.Equal(t, c.no, score >= scoreNoPlan, "%d %v", score, why)
		})
	}
}

// TestParts reads texts whose parts form one plan: lists, a table and records in turn.
func TestParts(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"TakingTurns": {"- 1.1 Count the beds\n- 1.2 Draw the plan (after 1.1)\n\n| No. | What | Needs |\n|---|---|---|\n| 2.1 | Empty the wing | 1.2 |\n| 2.2 | Paint it | 2.1 |\n\n3.1 Move in – after 2.2\n3.2 Hand over – after 3.1", "1.1>1.2 1.2>2.1 2.1>2.2 2.2>3.1 3.1>3.2"},
		"Remarks":     {"1. Draft\n2. Recruit\n3. Run\n4. Code\n5. Pay\n\nDependencies:\n- Step 3 can only begin when steps 1 and 2 are complete.\n- Steps 4 and 5 both follow step 3.\n- Steps 1 and 2 have no dependencies.", "1>3 2>3 3>4 3>5"},
		"Records":     {"R1 Blog (needs nothing)\nR2 Report (after R1 and M2)\n\n[{\"id\": \"M1\", \"task\": \"move in\", \"needs\": []}, {\"id\": \"M2\", \"task\": \"sow\", \"needs\": [\"M1\"]}]", "M1>M2 M2>R2 R1>R2"},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			all := Read(form.NewSource(c.text))
			require.NotEmpty(t, all)
			require.Equal(t, c.want, edges(all[0]))
		})
	}
}

// TestMissing checks that labels which no step has are found, but only where a relation expects a label.
func TestMissing(t *testing.T) {
	named := func(ids ...string) (out []Named) {
		for _, id := range ids {
			out = append(out, Named{ID: id, Titles: []string{"x"}, Parent: -1})
		}
		return out
	}
	tests := map[string]struct {
		ids  []string
		text string
		want []string
	}{
		"Letter":  {[]string{"A", "B", "C"}, "bake (after A and F)", []string{"F"}},
		"Code":    {[]string{"R1", "R2", "D1"}, "report (after R1 and M8)", []string{"M8"}},
		"Dotted":  {[]string{"4.1", "4.2"}, "deliver (after 2.6)", []string{"2.6"}},
		"Quarter": {[]string{"R1", "R2"}, "report (after Q3)", nil},
		"Word":    {[]string{"R1", "R2"}, "report after M8 screws are in", nil},
		"NoList":  {[]string{"1", "2"}, "report (after F)", nil},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			rels, _ := NewNames(named(c.ids...)).Relations(1, c.text, 0)
			var got []string
			for _, r := range rels {
				got = append(got, r.Unknown...)
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestMood(t *testing.T) {
	tests := map[string]struct {
		lang, entry string
		want        mood
	}{
		"Imperative":  {"en", "Thaw the pipes (after 2)", acting},
		"Unknown":     {"en", "Zorp the pipes", acting},
		"BehindName":  {"en", "Ann – dig a hole", acting},
		"Of":          {"en", "Export of invoices", deed},
		"Finite":      {"en", "Rust is hard to learn", stating},
		"Person":      {"en", "it loads the file", stating},
		"VerbAsNoun":  {"en", "Go is easier to pick up", stating},
		"Swedish":     {"sv", "Nya loggan ligger ute på webben", stating},
		"Infinitive":  {"de", "Scanner kalibrieren", acting},
		"Plural":      {"de", "Zwei Möhren", noMood},
		"Article":     {"de", "eine Erklärung", noMood},
		"Noun":        {"de", "Prüfung des Vertrags", deed},
		"French":      {"fr", "Achetez la peinture", acting},
		"Korean":      {"ko", "온실 비닐 교체", deed},
		"KoreanEnd":   {"ko", "큰 섬입니다.", stating},
		"Japanese":    {"ja", "会場を予約する", acting},
		"Chinese":     {"zh", "采购设备", acting},
		"ChineseFact": {"zh", "效率更高", stating},
		"Arabic":      {"ar", "تصميم الغلاف", acting},
		"Hindi":       {"hi", "मॉडल जोड़ना", acting},
		"Turkish":     {"tr", "Eserleri as", acting},
		"Indonesian":  {"id", "Cari lokasi", acting},
		"Vietnamese":  {"vi", "Kiểm tra điện", acting},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, moodOf(c.lang, c.entry))
		})
	}
}

func FuzzDiscourse(f *testing.F) {
	f.Add("1. dig\n2. fill\n\nScratch that, 2 before 1. Drop 1. Add 3: x. 3 needs it.")
	f.Add("First dig. Then fill; meanwhile paint. Once both are done, rest.")
	f.Add("Option A\n1. a\nOption B\n1. b\nwe choose B")
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range Read(form.NewSource(text)) {
			for _, it := range r.Items {
				if it.Off < 0 || it.Off > len(text) {
					t.Fatalf("item %q is outside of the text", it.ID)
				}
			}
		}
	})
}

func TestStemsOfSigns(t *testing.T) {
	require.Empty(t, (&proseReader{}).stems("\u0307 \u200d\ufe0f"))
}
