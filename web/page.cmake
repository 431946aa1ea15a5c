# SPDX-License-Identifier: Apache-2.0
# Writes OUT: the page of DIR with its style, its scripts and PROGRAM in it.
set(scripts ask controls results tour start)
file(READ ${DIR}/page.html html)
file(READ ${DIR}/page.css css)
set(js "")
foreach(script ${scripts})
  file(READ ${DIR}/${script}.js content)
  string(APPEND js "${content}\n")
endforeach()
file(READ ${DIR}/worker.js worker)
file(READ ${PROGRAM} program)
# Nothing in a script may end its element.
string(REPLACE "</script" "<\\/script" program "${program}")
string(REPLACE "{{page.css}}" "${css}" html "${html}")
string(REPLACE "{{page.js}}" "${js}" html "${html}")
string(REPLACE "{{worker.js}}" "self.fetch = undefined /* of the program, whose bytes are in it */\n${program}\n${worker}" html "${html}")
file(WRITE ${OUT} "${html}")
