package meaning

import (
	"fmt"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// said writes relations in short: "1>4" for 1 before 4, "4=3" for parallel, "4!3" for apart, "4~3" for the
// same needs as 3, "4-" for no needs, "?2" for a doubt.
func said(n *Names, self int, text string) string {
	rels, doubts := n.Relations(self, text, 0)
	id := func(i int) string { return n.items[i].ID }
	var out []string
	for _, r := range rels {
		for _, s := range r.Subjects {
			for _, x := range r.Items {
				switch r.Kind {
				case Before:
					out = append(out, id(s)+">"+id(x))
				case Beside:
					out = append(out, id(s)+"="+id(x))
				case Apart:
					out = append(out, id(s)+"!"+id(x))
				case Ditto:
					out = append(out, id(s)+"~"+id(x))
				default:
					out = append(out, id(x)+">"+id(s))
				}
			}
			for _, u := range r.Unknown {
				out = append(out, u+">"+id(s))
			}
			if r.Kind == None {
				out = append(out, id(s)+"-")
			}
		}
	}
	for _, d := range doubts {
		out = append(out, "?"+d.Text)
	}
	sort.Strings(out)
	var uniq []string
	for i, s := range out {
		if i == 0 || s != out[i-1] {
			uniq = append(uniq, s)
		}
	}
	return strings.Join(uniq, " ")
}

func numbered(n int) []Named {
	items := make([]Named, n)
	for i := range items {
		items[i] = Named{ID: fmt.Sprint(i + 1), Parent: -1}
	}
	return items
}

func withIDs(ids string) []Named {
	var items []Named
	for _, id := range strings.Fields(ids) {
		items = append(items, Named{ID: id, Parent: -1})
	}
	return items
}

func TestRelationsOfItem5(t *testing.T) {
	for lang, texts := range map[lexicon.Lang]map[string]string{
		"en": {
			"Paint the door after 2":                              "2>5",
			"Paint the door (needs 1, 2 and 4)":                   "1>5 2>5 4>5",
			"Paint. Depends on steps 2-4":                         "2>5 3>5 4>5",
			"Paint. Depends on steps 2 through 4.":                "2>5 3>5 4>5",
			"Paint (2)":                                           "2>5",
			"Paint (2, 3)":                                        "2>5 3>5",
			"Compare the results of 2 and 3":                      "2>5 3>5",
			"Merge the output of step 1 and the output of step 4": "1>5 4>5",
			"Paint the wall, no dependencies":                     "5-",
			"Paint the wall; does not depend on 2":                "5!2",
			"Independent of steps 1 and 2":                        "5!1 5!2",
			"Needs nothing":                                       "5-",
			"Paint, not before 3":                                 "3>5",
			"Can't start until 3 is done":                         "3>5",
			"Cannot begin before 2 and 3 are finished":            "2>5 3>5",
			"No need to wait for 1":                               "5!1",
			"Do it in parallel with 4":                            "5=4",
			"Must be done before 2":                               "5>2",
			"Do this before step 1, using step 3":                 "3>5 5>1",
			"Blocks 6 and 7":                                      "5>6 5>7",
			"Followed by 6":                                       "5>6",
			"Feeds step 7":                                        "5>7",
			"Requires the previous step":                          "4>5",
			"After the two previous steps":                        "3>5 4>5",
			"Requires both previous steps":                        "3>5 4>5",
			"Once all of the above are done":                      "1>5 2>5 3>5 4>5",
			"Needs the last three":                                "2>5 3>5 4>5",
			"Follows the first two steps":                         "1>5 2>5",
			"Builds on the second and third steps":                "2>5 3>5",
			"Relies on the first step":                            "1>5",
			"Starts when steps two and three are complete":        "2>5 3>5",
			"Paint, after everything else":                        "1>5 2>5 3>5 4>5 6>5 7>5",
			"→ uses #2":                                           "2>5",
			"Deploy ← 3, 4":                                       "3>5 4>5",
			"Serve 3 customers after lunch":                       "",
			"Wait 5 minutes, then pay $3 for 2 people":            "",
			"Upgrade to version 2 in 3 weeks at 10:30 with 50 %":  "",
			"After 2 weeks of rest":                               "",
			"Buy 2 boxes, after 1":                                "1>5",
			"Waits for 2 as well as 3":                            "2>5 3>5",
			"after 1/2":                                           "1>5 2>5",
			"after 1 + 3":                                         "1>5 3>5",
			"from 2 to 4":                                         "2>5 3>5 4>5",
			"As soon as 3 succeeds":                               "3>5",
			"After step 9":                                        "9>5",
			"With 2 and 3 done, paint the wall":                   "2>5 3>5",
			"Only once step 2 has been signed off by the client":  "2>5",
			"Steps 2 and 4 must be finished first":                "2>5 4>5",
			"Also after 3":                                        "3>5",
			"Same as above, after 4":                              "4>5",
			"Get a slot before eleven":                            "",
			"Due 3/4, needs 1":                                    "1>5",
			"We don't need step 2 for this":                       "5!2",
			"Everyone meets, but step 4 comes first":              "4>5",
			"depends on: 1; 2; 3":                                 "1>5 2>5 3>5",
			"needs (1) and (3)":                                   "1>5 3>5",
			"Prerequisites: steps #1 & #3":                        "1>5 3>5",
			"this one waits for 3, while 2 is still running":      "3>5 5=2",
			"any order after 1":                                   "1>5",
			"after 1 and before 7":                                "1>5 5>7",
			"it can start once step 1 and step 2 are through":     "1>5 2>5",
			"Runs alongside steps 3 and 4":                        "5=3 5=4",
			"Paint (ditto)":                                       "5~4",
			"Paint – same as step 2":                              "5~2",
			"Paint. Same dependency as 3.":                        "5~3",
			"Paint (same as above)":                               "5~4",
			"Do the same for the back door":                       "",
			"Paint it like the old one":                           "",
			"Paint. It needs step 1 but not step 2.":              "1>5",
			"needs the figures of the two previous steps":         "3>5 4>5",
			"all three preceding tasks must be over":              "2>5 3>5 4>5",
			"Sand both sides of the door":                         "",
			"Wash the pots and pans, then dry both":               "",
			"Paint (oven and permit: 2, 3)":                       "2>5 3>5 ?2, 3",
			"Paint. Depends on step 1, not on step 2.":            "1>5",
		},
		"de": {
			"Streichen (benötigt 2)":              "2>5",
			"erst nach Schritt 3 und 4":           "3>5 4>5",
			"sobald 2 und 3 fertig sind":          "2>5 3>5",
			"nach den Schritten 2 bis 4":          "2>5 3>5 4>5",
			"hängt von 1 ab":                      "1>5",
			"setzt Schritt 2 voraus":              "2>5",
			"unabhängig von 3":                    "5!3",
			"keine Abhängigkeiten":                "5-",
			"parallel zu Schritt 4":               "5=4",
			"nach dem ersten Schritt":             "1>5",
			"braucht die beiden vorigen Schritte": "3>5 4>5",
			"vor Schritt 6":                       "5>6",
			"wartet nicht auf 2":                  "5!2",
			"kostet 3 Euro und dauert 2 Tage":     "",
			"mit dem Ergebnis von Schritt 2":      "2>5",
			"nachdem 3 abgeschlossen ist":         "3>5",
			"nicht vor 2":                         "2>5",
			"Voraussetzung: Nr. 1 und Nr. 2":      "1>5 2>5",
			"nach 1., 2. und 3.":                  "1>5 2>5 3>5",
			"wenn 2, 3 und 4 durch sind":          "2>5 3>5 4>5",
			"braucht alle vorherigen Schritte":    "1>5 2>5 3>5 4>5",
			"Streichen (dito)":                    "5~4",
			"setzt ebenfalls Schritt 1 voraus":    "1>5",
		},
		"fr": {
			"nécessite les étapes 1 et 2":             "1>5 2>5",
			"une fois l'étape 3 terminée":             "3>5",
			"après l'étape 4":                         "4>5",
			"dépend de 2":                             "2>5",
			"ne dépend pas de 2":                      "5!2",
			"en parallèle de l'étape 4":               "5=4",
			"aucune dépendance":                       "5-",
			"à partir des résultats des étapes 2 à 4": "2>5 3>5 4>5",
			"avant l'étape 6":                         "5>6",
			"dès que 1 et 2 sont terminées":           "1>5 2>5",
			"après la première étape":                 "1>5",
			"après les deux étapes précédentes":       "3>5 4>5",
		},
		"es": {
			"después del paso 2":                 "2>5",
			"requiere los pasos 1 y 3":           "1>5 3>5",
			"una vez terminado el paso 4":        "4>5",
			"sin dependencias":                   "5-",
			"en paralelo con el paso 4":          "5=4",
			"cuando 2 y 3 estén listos":          "2>5 3>5",
			"no depende de 2":                    "5!2",
			"antes del paso 6":                   "5>6",
			"tras el primer paso":                "1>5",
			"necesita los pasos 2 a 4":           "2>5 3>5 4>5",
			"hacen falta ambos pasos anteriores": "3>5 4>5",
			"Pintar (igual que el paso 2)":       "5~2",
		},
		"it": {
			"dopo il passo 2":             "2>5",
			"richiede i passi 1 e 3":      "1>5 3>5",
			"quando 2 e 3 sono pronti":    "2>5 3>5",
			"in parallelo con il punto 4": "5=4",
			"nessuna dipendenza":          "5-",
			"non dipende da 2":            "5!2",
			"prima del passo 6":           "5>6",
			"dopo il primo passo":         "1>5",
		},
		"pt": {
			"depois da etapa 2":                 "2>5",
			"requer os passos 1 e 3":            "1>5 3>5",
			"assim que 2 e 3 estiverem prontos": "2>5 3>5",
			"em paralelo com a etapa 4":         "5=4",
			"sem dependências":                  "5-",
			"não depende de 2":                  "5!2",
			"antes da etapa 6":                  "5>6",
		},
		"nl": {
			"na stap 2":               "2>5",
			"vereist stappen 1 en 3":  "1>5 3>5",
			"zodra 2 en 3 klaar zijn": "2>5 3>5",
			"parallel met stap 4":     "5=4",
			"geen afhankelijkheden":   "5-",
			"niet afhankelijk van 2":  "5!2",
			"vóór stap 6":             "5>6",
		},
		"sv": {
			"efter steg 2":          "2>5",
			"kräver steg 1 och 3":   "1>5 3>5",
			"när 2 och 3 är klara":  "2>5 3>5",
			"parallellt med steg 4": "5=4",
			"inga beroenden":        "5-",
			"beror inte på 2":       "5!2",
			"före steg 6":           "5>6",
		},
		"pl": {
			"po kroku 2":             "2>5",
			"wymaga kroków 1 i 3":    "1>5 3>5",
			"gdy 2 i 3 są gotowe":    "2>5 3>5",
			"równolegle z krokiem 4": "5=4",
			"brak zależności":        "5-",
			"nie zależy od 2":        "5!2",
			"przed krokiem 6":        "5>6",
		},
		"ru": {
			"после шага 2":                              "2>5",
			"требует шагов 1 и 3":                       "1>5 3>5",
			"когда 2 и 3 готовы":                        "2>5 3>5",
			"параллельно с шагом 4":                     "5=4",
			"нет зависимостей":                          "5-",
			"не зависит от 2":                           "5!2",
			"перед шагом 6":                             "5>6",
			"после второго и третьего шагов":            "2>5 3>5",
			"после 2-го шага":                           "2>5",
			"нужны шаги 2–4":                            "2>5 3>5 4>5",
			"когда будут готовы 2 и 4":                  "2>5 4>5",
			"после пункта 1, но от пункта 3 не зависит": "1>5 5!3",
		},
		"uk": {
			"після кроку 2":         "2>5",
			"потребує кроків 1 і 3": "1>5 3>5",
			"коли 2 і 3 готові":     "2>5 3>5",
			"паралельно з кроком 4": "5=4",
			"не залежить від 2":     "5!2",
			"перед кроком 6":        "5>6",
		},
		"tr": {
			"2. adımdan sonra":           "2>5",
			"1. ve 3. adımlardan sonra":  "1>5 3>5",
			"2 ve 3 tamamlanınca":        "2>5 3>5",
			"4. adımla paralel":          "5=4",
			"bağımlılık yok":             "5-",
			"2. adıma bağlı değil":       "5!2",
			"6. adımdan önce":            "5>6",
			"2'den sonra":                "2>5",
			"2 ve 3 bitmeden başlanamaz": "2>5 3>5",
		},
		"vi": {
			"sau bước 2":                 "2>5",
			"cần bước 1 và bước 3":       "1>5 3>5",
			"khi 2 và 3 xong":            "2>5 3>5",
			"song song với bước 4":       "5=4",
			"không phụ thuộc vào bước 2": "5!2",
			"trước bước 6":               "5>6",
		},
		"id": {
			"setelah langkah 2":           "2>5",
			"membutuhkan langkah 1 dan 3": "1>5 3>5",
			"ketika 2 dan 3 selesai":      "2>5 3>5",
			"paralel dengan langkah 4":    "5=4",
			"tidak bergantung pada 2":     "5!2",
			"sebelum langkah 6":           "5>6",
		},
		"zh": {
			"在步骤2之后":     "2>5",
			"需要步骤1和步骤3":  "1>5 3>5",
			"等2和3完成后开始":  "2>5 3>5",
			"与步骤4并行":     "5=4",
			"无依赖":        "5-",
			"不依赖步骤2":     "5!2",
			"依赖第二步和第三步":  "2>5 3>5",
			"在步骤6之前完成":   "5>6",
			"需要3个人,2天":   "",
			"第2步到第4步完成后": "2>5 3>5 4>5",
			"刷漆（同上）":     "5~4",
			"刷漆（与第2步相同）": "5~2",
		},
		"ja": {
			"2の後":              "2>5",
			"ステップ1と3が完了したら":    "1>5 3>5",
			"ステップ4と並行して":       "5=4",
			"依存関係なし":           "5-",
			"2には依存しない":         "5!2",
			"6の前に":             "5>6",
			"2番と3番が終わってから":     "2>5 3>5",
			"塗る（手順2と同じく手順1の後）": "1>5",
			"人を3人雇い、2日かける":     "",
		},
		"ko": {
			"2번 이후":          "2>5",
			"1단계와 3단계가 완료되면": "1>5 3>5",
			"4번과 동시에":        "5=4",
			"의존성 없음":         "5-",
			"6번 전에":          "5>6",
			"2, 3 완료 후":      "2>5 3>5",
		},
		"hi": {
			"चरण 2 के बाद":                "2>5",
			"चरण 1 और 3 पूरे होने के बाद": "1>5 3>5",
			"चरण 4 के समानांतर":           "5=4",
			"चरण 2 पर निर्भर नहीं":        "5!2",
			"चरण 6 से पहले":               "5>6",
		},
		"ar": {
			"بعد الخطوة 2":         "2>5",
			"بعد الخطوتين 1 و3":    "1>5 3>5",
			"بالتوازي مع الخطوة 4": "5=4",
			"لا يعتمد على 2":       "5!2",
			"قبل الخطوة 6":         "5>6",
			"بعد ٢":                "2>5",
		},
	} {
		n := NewNames(numbered(7))
		n.In(lang)
		for text, want := range texts {
			if got := said(n, 4, text); got != want {
				t.Errorf("%s: %s: got %q want %q", lang, text, got, want)
			}
		}
	}
}

func TestRelationsByLabel(t *testing.T) {
	for _, c := range []struct{ ids, self, text, want string }{
		{"T1 T2 T3", "T3", "Compare T1 and T2", "T1>T3 T2>T3"},
		{"T1 T2 T3", "T3", "needs T9", "T9>T3"},
		{"T1 T2 T3", "T3", "T1, T2", "T1>T3 T2>T3"},
		{"1a 1b 2", "2", "as soon as 1a and 1b are through", "1a>2 1b>2"},
		{"A B C", "C", "after A and B", "A>C B>C"},
		{"A B C", "C", "A nice day in B", ""},
		{"a b c", "c", "grill (a and b first)", "a>c b>c"},
		{"I II III IV", "IV", "presuppose II and III", "II>IV III>IV"},
		{"fetch_data clean load", "load", "uses fetch_data", "fetch_data>load"},
		{"1.1 1.2 2.1", "2.1", "after 1.2", "1.2>2.1"},
		{"AP1 AP2 AP3 AP4", "AP4", "nach AP1–AP3", "AP1>AP4 AP2>AP4 AP3>AP4"},
		{"第一步 第二步 第三步", "第三步", "依赖第一步和第二步", "第一步>第三步 第二步>第三步"},
		{"a b c", "c", "grill (depende de a)", "a>c"},
		{"a b c", "c", "suppose que a et b soient réglés", "a>c b>c"},
		{"① ② ③", "③", "sau ① và ②", "①>③ ②>③"},
	} {
		items := withIDs(c.ids)
		n := NewNames(items)
		self := 0
		for i := range items {
			if items[i].ID == c.self {
				self = i
			}
		}
		require.Equal(t, c.want, said(n, self, c.text), c.text)
	}
}

func TestRelationsByTitle(t *testing.T) {
	items := numbered(4)
	for i, title := range []string{"Survey the site", "Draft the report", "Send the invoice", "Celebrate"} {
		items[i].Titles = []string{title}
	}
	n := NewNames(items)
	n.In("en")
	require.Equal(t, "1>4", said(n, 3, "after the survey"))
	require.Equal(t, "2>4", said(n, 3, "once the report is ready"))
	require.Equal(t, "1>4 2>4", said(n, 3, "after the survey and the report"))
	require.Equal(t, "2>4 3>4", said(n, 3, "depends on: Draft the report, Send the invoice"))
	require.Equal(t, "1>4", said(n, 3, "after surveying"))
	require.Equal(t, "2>4", said(n, 3, "Celebrate (the report must be out)"))
	n.In("es")
	require.Equal(t, "2>4 3>4", said(n, 3, "cuando estén listos el report y el invoice"))
	n.In("en")
	require.Equal(t, "4~1", said(n, 3, "Celebrate – same condition as the survey"))
	require.Empty(t, said(n, 3, "two weeks before the survey"))
	require.Equal(t, "2>4 3>4", said(n, 3, "once the report is ready and the invoice is sent"))
	require.Equal(t, "1>4 ?there is too much fog on the site", said(n, 3, "if there is too much fog on the site"))
	require.Empty(t, said(n, 3, "after lunch"))
}

func TestRelationsByCompound(t *testing.T) {
	items := numbered(4)
	for i, title := range []string{"Bauantrag stellen", "Auktion ansetzen", "Auktionator finden", "Feiern"} {
		items[i].Titles = []string{title}
	}
	n := namesIn(items, "de")
	require.Equal(t, "1>4", said(n, 3, "Feiern, sobald der Antrag durch ist"))
	require.Equal(t, "2>4", said(n, 3, "Feiern nach der Auktion"), "the whole word counts before its beginning")
	require.Equal(t, "4~2", said(n, 3, "Feiern – dafür gilt dasselbe wie für 2"))
}

func TestRelationsByCountedNoun(t *testing.T) {
	items := numbered(4)
	for i, title := range []string{"Check the roof", "Check the cellar", "Check the wiring", "Move in"} {
		items[i].Titles = []string{title}
	}
	n := NewNames(items)
	n.In("en")
	require.Equal(t, "1>4 2>4 3>4", said(n, 3, "Move in after the three checks"))
	require.Equal(t, "1>3 2>3", said(n, 2, "once both checks have passed"))
}

func TestRelationsOutside(t *testing.T) {
	n := NewNames(numbered(5))
	n.In("en")
	for text, want := range map[string]string{
		"Step 3 comes before step 2.":                                          "3>2",
		"4 waits for 2 and for 3.":                                             "2>4 3>4",
		"Tasks 4 and 5 depend on 3.":                                           "3>4 3>5",
		"Step 4 requires steps 1-3":                                            "1>4 2>4 3>4",
		"Step 2 does not depend on step 1.":                                    "2!1",
		"I hope that helps with all 5 of your steps":                           "",
		"Once 3 is out, 4 and 5 can be scheduled independently of each other.": "3>4 3>5",
		"5 comes last, it wants 3 as well as 4.":                               "3>5 4>5",
		"Step 1 has to be done first. Steps 2 to 4 can run in parallel after that. Step 5 waits for all the others.": "1>2 1>3 1>4 1>5 2>5 3>5 4>5",
		"Once 1 is done, two people can go home.": "",
	} {
		require.Equal(t, want, said(n, -1, text), text)
	}
}

func FuzzRelations(f *testing.F) {
	f.Add("needs 1, 2 and (3) – after the previous step, not before T1 → 2a を 2番の後 sobald 2 fertig ist")
	f.Fuzz(func(t *testing.T, text string) {
		n := NewNames([]Named{{ID: "1", Titles: []string{text}}, {ID: "2a"}, {ID: "T1"}, {ID: "B"}})
		for self := -1; self < 4; self++ {
			rels, _ := n.Relations(self, text, 0)
			for _, r := range rels {
				require.True(t, 0 <= r.Off && r.Off <= r.End && r.End <= len(text), "%d-%d of %d", r.Off, r.End, len(text))
			}
		}
	})
}
