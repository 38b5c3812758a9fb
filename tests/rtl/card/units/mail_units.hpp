// A card has its own way to the mailboxes: in the place of ../../core/mail_units.hpp.
#ifndef LORA_TEST_MAIL_UNITS_HPP
#define LORA_TEST_MAIL_UNITS_HPP

#include "VControl.h"
#include "units.hpp"

class MailUnits {
  public:
    explicit MailUnits(Units &) {}
    void drive(VControl &) {}
    void see(const VControl &, bool) {}
    void reset() {}
};

#endif
