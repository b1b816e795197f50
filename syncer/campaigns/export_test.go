package campaigns

import (
	"dibs/models"

	"gorm.io/gorm"
)

// FindClaims is the query of ClaimsOf.
func FindClaims(db *gorm.DB, q models.ClaimsQuery) *gorm.DB {
	return findClaims(db, q).Find(&[]claimLine{})
}
