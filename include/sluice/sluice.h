// SPDX-License-Identifier: Apache-2.0
// Sluice as a library: a model, a machine and caps make a plan; a session runs it on data, and tells an
// observer.
//
// Everything that can fail returns a Result or Status. Nothing prints. docs/library.md has two whole
// programs.
#pragma once

#include "sluice/dataset.h"
#include "sluice/machine.h"
#include "sluice/model.h"
#include "sluice/observer.h"
#include "sluice/plan.h"
#include "sluice/schedule.h"
#include "sluice/session.h"
#include "sluice/status.h"
