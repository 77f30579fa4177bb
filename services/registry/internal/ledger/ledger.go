// Package ledger owns what may be spent: accounts with caps, what is reserved of them before a call, and the
// answer to a reservation that does not fit. It must not know any database or protocol. Money is integer
// nano-USD.
package ledger

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

const (
	// ReasonBudgetExceeded refuses a reservation that would go over a cap.
	ReasonBudgetExceeded = "BUDGET_EXCEEDED"
	// ReasonPriceUnknown refuses a reservation of unknown cost where money is capped.
	ReasonPriceUnknown = "PRICE_UNKNOWN"
	// ReasonEstimateUnknown refuses a call of which nothing tells what it may put out, where a hard cap
	// bounds it.
	ReasonEstimateUnknown = "ESTIMATE_UNKNOWN"
	// ReasonEtagMismatch refuses a change of caps that are not those that the caller has seen.
	ReasonEtagMismatch = "ETAG_MISMATCH"
)

// Level is what an account is of. Its numbers are those of the API and of the stores.
type Level int16

// The levels, in the order in which accounts are locked. That of the namespace, which everybody wants, is the
// last one and is held for the shortest time.
const (
	Epic Level = iota + 1
	Task
	Run
	Namespace
)

// String is the word of the level.
func (l Level) String() string {
	switch l {
	case Namespace:
		return "namespace"
	case Epic:
		return "epic"
	case Task:
		return "task"
	case Run:
		return "run"
	}
	return "level " + strconv.Itoa(int(l))
}

// ID names an account of a namespace. Name is empty for that of the namespace.
type ID struct {
	Level Level
	Name  string
}

// Compare is the order in which accounts are locked.
func (id ID) Compare(o ID) int {
	return cmp.Or(cmp.Compare(id.Level, o.Level), cmp.Compare(id.Name, o.Name))
}

// Text is the id as one text, which ParseID reads.
func (id ID) Text() string { return strconv.Itoa(int(id.Level)) + ":" + id.Name }

// ParseID reads what Text wrote.
func ParseID(s string) (ID, error) {
	level, name, ok := strings.Cut(s, ":")
	n, err := strconv.ParseInt(level, 10, 16)
	if !ok || err != nil || Level(n) < Epic || Level(n) > Namespace {
		return ID{}, fmt.Errorf("%q is not an account", s)
	}
	return ID{Level(n), name}, nil
}

// Amount is a sum of tokens and of money.
type Amount struct{ Tokens, NanoUSD int64 }

// Plus returns the sum, or an error if it is out of range.
func (a Amount) Plus(o Amount) (Amount, error) {
	tokens, err := usage.Add(a.Tokens, o.Tokens)
	if err != nil {
		return Amount{}, err
	}
	money, err := usage.Add(a.NanoUSD, o.NanoUSD)
	return Amount{tokens, money}, err
}

// Minus returns the difference. Both are in range, so it is too.
func (a Amount) Minus(o Amount) Amount { return Amount{a.Tokens - o.Tokens, a.NanoUSD - o.NanoUSD} }

// Want is what a call may use at most.
type Want struct {
	Tokens int64
	// NanoUSD is nil if the price is not known.
	NanoUSD *int64
}

// Amount is what is reserved; an unknown price reserves no money.
func (w Want) Amount() Amount {
	a := Amount{Tokens: w.Tokens}
	if w.NanoUSD != nil {
		a.NanoUSD = *w.NanoUSD
	}
	return a
}

// Caps bound what an account may spend; nil is no bound, 0 is nothing.
type Caps struct{ Tokens, NanoUSD *int64 }

// IsZero reports whether there is no bound.
func (c Caps) IsZero() bool { return c.Tokens == nil && c.NanoUSD == nil }

// Account is what a level has spent and reserved, and what it may. Nothing goes over Hard; what goes over
// Soft is told.
type Account struct {
	ID
	Hard, Soft Caps
	// Spent is what was booked, Reserved what calls under way may use.
	Spent, Reserved Amount
	// Beyond is the part of Spent of the account of a run that is not in the entries of the run itself:
	// what the run was told to have used when the account was opened, and what runs below it have used
	// since. It is nil if it is not known: an account that is not of a run, or one that an earlier
	// version has opened.
	Beyond *Amount
	// Principal is who set the caps last, from the API key that was shown.
	Principal string
	// Ceiling are hard caps that were set for the account itself, and CeilingBy is who set them. Whoever
	// may change an epic may lower its hard caps, and raise them up to these.
	Ceiling   Caps
	CeilingBy string
}

// ReasonAboveCap refuses a budget of an epic that is above a cap which was set for it.
const ReasonAboveCap = "BUDGET_ABOVE_CAP"

// CheckCeiling refuses hard caps that are above the ceiling, or leave out one of it.
func (a *Account) CheckCeiling(hard Caps) error {
	for _, c := range []struct {
		field, unit, flag string
		top, want         *int64
	}{
		{"budget_tokens", "tokens", "--hard-tokens N", a.Ceiling.Tokens, hard.Tokens},
		{"budget_nano_usd", "nano-USD", "--hard-usd X", a.Ceiling.NanoUSD, hard.NanoUSD},
	} {
		if c.top == nil || c.want != nil && *c.want <= *c.top {
			continue
		}
		by := a.CeilingBy
		if by == "" {
			by = "somebody who may set caps"
		}
		return errs.New(errs.FailedPrecondition, ReasonAboveCap, "%s of %s %s can be at most %d %s: %s has set this cap", c.field, a.Level, a.Name, *c.top, c.unit, by).
			Violate(c.field, ReasonAboveCap, "must be at most "+strconv.FormatInt(*c.top, 10)).
			Hint("`epigraph budgets set --" + a.Level.String() + " " + a.Name + " " + c.flag + "` raises it, with a key that has the scope admin")
	}
	return nil
}

// Spend adds what a call of a run has used.
func (a *Account) Spend(used Amount, run string) error {
	if a.Level == Run && a.Name != run {
		return a.Pay(used, used)
	}
	return a.Pay(used, Amount{})
}

// Pay adds what calls have used, of which so much is beyond the entries of the account's own run.
func (a *Account) Pay(used, beyond Amount) (err error) {
	if a.Spent, err = a.Spent.Plus(used); err != nil || a.Beyond == nil {
		return err
	}
	sum, err := a.Beyond.Plus(beyond)
	a.Beyond = &sum
	return err
}

// Bounds reports whether the account has a cap now.
func (a *Account) Bounds() bool { return !a.Hard.IsZero() || !a.Soft.IsZero() }

// Left reports whether less is spent than each hard cap, so that work may begin.
func (a *Account) Left() bool {
	return (a.Hard.Tokens == nil || a.Spent.Tokens < *a.Hard.Tokens) && (a.Hard.NanoUSD == nil || a.Spent.NanoUSD < *a.Hard.NanoUSD)
}

// Etag changes with the caps.
func (a *Account) Etag() string {
	one := func(n *int64) string {
		if n == nil {
			return "-"
		}
		return strconv.FormatInt(*n, 10)
	}
	return `"` + strings.Join([]string{one(a.Hard.Tokens), one(a.Hard.NanoUSD), one(a.Soft.Tokens), one(a.Soft.NanoUSD)}, "/") + `"`
}

// CheckEtag refuses a change by a caller that has seen other caps. An empty etag is that of no caller.
func (a *Account) CheckEtag(etag string) error {
	if etag == "" || etag == a.Etag() {
		return nil
	}
	return errs.New(errs.Conflict, ReasonEtagMismatch, "the caps have changed since they were read").Hint("read the budget again, and repeat the change")
}

// Refusal says which cap a reservation does not fit under.
type Refusal struct {
	Account ID
	// Money is whether the cap is one of money, in nano-USD, and not of tokens.
	Money bool
	// Unpriced says that the price is not known, so that no cap of money can hold.
	Unpriced bool
	// Unestimated says that nothing tells what the call may put out, so that no cap can hold.
	Unestimated                bool
	Cap, Spent, Reserved, Asks int64
}

// Exceeds reports whether what was asked for does not fit under a cap with so much spent, even once no call
// is under way any more.
func (r Refusal) Exceeds(limit, spent int64) bool {
	return !r.Unpriced && !r.Unestimated && !fits(limit, spent, 0, r.Asks)
}

// Err is the refusal as an error.
func (r Refusal) Err() error {
	whose := r.Account.Level.String()
	if r.Account.Name != "" {
		whose += " " + r.Account.Name
	}
	if r.Unpriced {
		return errs.New(errs.ResourceExhausted, ReasonPriceUnknown, "the budget of %s is in money, and the price of the call is not known", whose).
			Hint("add a price of the model with CreatePrice, or cap tokens in place of money")
	}
	if r.Unestimated {
		return errs.New(errs.ResourceExhausted, ReasonEstimateUnknown, "%s has a budget, the call states no limit of its answer, and no earlier call of its model tells how long answers are", whose).
			Hint("state a limit of the answer")
	}
	unit := "tokens"
	if r.Money {
		unit = "nano-USD"
	}
	return errs.New(errs.ResourceExhausted, ReasonBudgetExceeded, "a call of up to %d %s does not fit: %s has spent %d and reserved %d of %d",
		r.Asks, unit, whose, r.Spent, r.Reserved, r.Cap).Hint("raise the cap with SetBudget, or wait for calls under way to end")
}

// admit says why a want does not fit under the hard caps, or returns nil. A want without a price does
// not fit under a cap in money. Only the budget of a run lets it pass and counts no money for it, as
// the journal of the run does: whether a call of unknown price is made must not depend on whether the
// run has children.
func (a *Account) admit(w Want) *Refusal {
	if c := a.Hard.Tokens; c != nil && !fits(*c, a.Spent.Tokens, a.Reserved.Tokens, w.Tokens) {
		return &Refusal{Account: a.ID, Cap: *c, Spent: a.Spent.Tokens, Reserved: a.Reserved.Tokens, Asks: w.Tokens}
	}
	c := a.Hard.NanoUSD
	switch {
	case c == nil, w.NanoUSD == nil && a.Level == Run:
		return nil
	case w.NanoUSD == nil:
		return &Refusal{Account: a.ID, Money: true, Unpriced: true, Cap: *c, Spent: a.Spent.NanoUSD, Reserved: a.Reserved.NanoUSD}
	case !fits(*c, a.Spent.NanoUSD, a.Reserved.NanoUSD, *w.NanoUSD):
		return &Refusal{Account: a.ID, Money: true, Cap: *c, Spent: a.Spent.NanoUSD, Reserved: a.Reserved.NanoUSD, Asks: *w.NanoUSD}
	}
	return nil
}

// AdmitEstimate says why work that is estimated to use so many tokens does not fit under the hard cap,
// beside what others are estimated to use; or it returns nil. An estimate holds back starts of work and
// no calls.
func (a *Account) AdmitEstimate(tokens, others int64) *Refusal {
	held, err := usage.Add(a.Reserved.Tokens, others)
	if c := a.Hard.Tokens; c != nil && (err != nil || !fits(*c, a.Spent.Tokens, held, tokens)) {
		return &Refusal{Account: a.ID, Cap: *c, Spent: a.Spent.Tokens, Reserved: held, Asks: tokens}
	}
	return nil
}

// Unestimated says which of the accounts refuses a call of which nothing tells how many tokens, or how much
// money, it may take: the first that has a hard cap of that. It is nil if none has.
func Unestimated(accounts []*Account, tokens, money bool) *Refusal {
	for _, a := range accounts {
		if tokens && a.Hard.Tokens != nil || money && a.Hard.NanoUSD != nil {
			return &Refusal{Account: a.ID, Unestimated: true}
		}
	}
	return nil
}

// Over reports whether an account is over a soft cap.
func (a *Account) Over() bool {
	return a.Soft.Tokens != nil && !fits(*a.Soft.Tokens, a.Spent.Tokens, a.Reserved.Tokens, 0) ||
		a.Soft.NanoUSD != nil && !fits(*a.Soft.NanoUSD, a.Spent.NanoUSD, a.Reserved.NanoUSD, 0)
}

// fits reports whether three amounts, none of them negative, are together at most limit. What does not fit
// into 64 bits does not fit.
func fits(limit, spent, reserved, more int64) bool {
	sum, err := usage.Add(spent, reserved)
	if err == nil {
		sum, err = usage.Add(sum, more)
	}
	return err == nil && sum <= limit
}

// Reserve takes a want from all accounts, or from none and says why. soft are the accounts that are over a
// soft cap then.
func Reserve(accounts []*Account, w Want) (soft []ID, no *Refusal) {
	for _, a := range accounts {
		if no = a.admit(w); no != nil {
			return nil, no
		}
	}
	after := make([]Amount, len(accounts))
	for i, a := range accounts {
		var err error
		if after[i], err = a.Reserved.Plus(w.Amount()); err != nil {
			return nil, &Refusal{Account: a.ID, Spent: a.Spent.Tokens, Reserved: a.Reserved.Tokens, Asks: w.Tokens}
		}
	}
	for i, a := range accounts {
		if a.Reserved = after[i]; a.Over() {
			soft = append(soft, a.ID)
		}
	}
	return soft, nil
}

// Held is a reservation: what a call may use at most, and of which accounts.
type Held struct {
	Key usage.Key
	Amount
	// Unpriced says that the price was not known.
	Unpriced bool
	// Kind, TaskID and EpicID are those of the entry that settles it.
	Kind           usage.Kind
	TaskID, EpicID string
	Provider       string
	Model          string
	Accounts       []ID
	// Incarnation is the highest of the owners that asked for it; 0 if it is not known. Owners of a run
	// have higher incarnations than those before them.
	Incarnation int64
	// Estimated says that it was forgotten and booked at its estimate; what the call really used may come
	// yet.
	Estimated bool
}
