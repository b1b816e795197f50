package records

import (
	"dibs/models"

	"gorm.io/gorm"
)

func FindClaims(db *gorm.DB, q models.ClaimsQuery) *gorm.DB {
	return findClaims(db, q).Find(&[]claimLine{})
}
