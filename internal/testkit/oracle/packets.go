package oracle

import (
	"context"
	"fmt"
)

// Money sums the packets of a campaign.
type Money struct {
	In         int64 // cents
	Uncredited int64 // packets taken and not credited: Redis lost the event
	Ghosts     int64 // credits whose claim Redis lost
}

// Packets checks that each packet has one owner or was returned,
// and that the accounts agree to the cent (I10).
func (b *Books) Packets(ctx context.Context, db Querier, sender string, closed bool, wrong Report) (m Money, err error) {
	var owned, returned, owners, due int64
	rows, err := db.QueryContext(ctx, `SELECT p.id, p.amount, COALESCE(p.claim_id, ''), p.returned_at IS NOT NULL,
		(SELECT COUNT(*) FROM account_entries e WHERE e.claim_id = p.claim_id AND e.amount = p.amount AND e.user_id = p.user_id)
		FROM packets p WHERE p.campaign_id = ?`, b.ID)
	if err != nil {
		return m, fmt.Errorf("oracle: packets: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id, claim string
		var amount, credits int64
		var back bool
		if err := rows.Scan(&id, &amount, &claim, &back, &credits); err != nil {
			return m, fmt.Errorf("oracle: packets: %w", err)
		}
		m.In += amount
		switch {
		case claim != "" && back:
			wrong("I10: %s: packet %s has an owner and was returned", b.ID, id)
		case claim != "":
			owned += amount
			owners++
			if credits == 0 {
				due += amount
				m.Uncredited++
			}
			isCredited := credits == 1 || credits == 0 && b.Lossy
			if r := b.ByID[claim]; r == nil || r.Packet.String != id || r.Amount.Int64 != amount || !isCredited {
				wrong("I10: %s: packet %s of %d is owned by claim %s, whose row is %+v and which has %d credits",
					b.ID, id, amount, claim, r, credits)
			}
		case back:
			returned += amount
		}
	}
	if err := rows.Err(); err != nil {
		return m, fmt.Errorf("oracle: packets: %w", err)
	}
	wrong.Equal("I10", b.ID, "packets with an owner and rows", owners, int64(len(b.Rows)))
	credited, err := b.credited(ctx, db, sender, &m)
	wrong.Equal("I10", b.ID, "cents credited and cents owned or returned", credited+due, owned+returned)
	if !b.Lossy {
		wrong.Equal("I10", b.ID, "credits without a claim and none", m.Ghosts, 0)
	}
	if closed && b.LostUnits == 0 { // lost packets are not returned
		wrong.Equal("I10", b.ID, "cents put in and cents owned or returned", m.In, owned+returned)
	}
	return m, err
}

func (b *Books) credited(ctx context.Context, db Querier, sender string, m *Money) (sum int64, err error) {
	rows, err := db.QueryContext(ctx, "SELECT claim_id, user_id, amount FROM account_entries WHERE campaign_id = ?", b.ID)
	if err != nil {
		return 0, fmt.Errorf("oracle: credits: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var claim, user string
		var amount int64
		if err := rows.Scan(&claim, &user, &amount); err != nil {
			return 0, fmt.Errorf("oracle: credits: %w", err)
		}
		if user == sender || b.ByID[claim] != nil {
			sum += amount
		} else {
			m.Ghosts++
		}
	}
	return sum, rows.Err()
}

// Accounts checks that an account equals the sum of its entries,
// to the cent (I10).
func Accounts(ctx context.Context, db Querier, wrong Report) error {
	var differ int64
	err := db.QueryRowContext(ctx, `SELECT COUNT(*) FROM accounts a WHERE (a.amount, a.entries) <>
		(SELECT COALESCE(SUM(e.amount), 0), COUNT(*) FROM account_entries e
		 WHERE e.user_id = a.user_id AND e.currency = a.currency)`).Scan(&differ)
	wrong.Equal("I10", "accounts", "accounts that differ from their entries and none", differ, 0)
	return err
}
