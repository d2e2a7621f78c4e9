"""The names of MediaWiki's behaviour switches, such as ``__NOTOC__``, in all its languages, without the underscores.

They are the names of MediaWiki 1.39 and of the extensions that Wikipedias use. A name that is not here is text.
"""

_ANY_CASE = "TOC NOTOC FORCETOC NOEDITSECTION NOGALLERY NOTITLECONVERT NOTC NOCONTENTCONVERT NOCC"

_OTHERS = """
NEWSECTIONLINK NONEWSECTIONLINK HIDDENCAT EXPECTUNUSEDCATEGORY EXPECTUNUSEDTEMPLATE INDEX NOINDEX
STATICREDIRECT DISAMBIG NOGLOBAL ARCHIVEDTALK NOTALK EXPECTED_UNCONNECTED_PAGE NOCOLLABORATIONHUBTOC
AABAW ABSCHNITTE_NICHT_BEARBEITEN ALAOSALINGITA ALLTIDINNEHÅLLSFÖRTECKNING ALLTIDINNHALDSLISTE
ALLTIDINNHOLDSLISTE AMARAKITAHUKCHAYCHU AMASAMIQTAHUKCHAYCHU AMASUTITAHUKCHAYCHU AMAUNANCHAYCHU
ANCAMINARSTATICO ASCUNDECAT ATAWALMASTIRĞIZBAW AUCUNEGALERIE AUCUNETDM AUCUNINDEX AUCUNLIENNOUVELLESECTION
AUCUNSOMMAIRE BAŞLIKDÖNÜŞÜMÜYOK BDY BEGALERIJOS BEMINDƏRİCOT BEREDAGSEKC BETURIN BEZCC BEZEDITOVATČÁST
BEZEDYCJISEKCJI BEZGALERIE BEZGALERII BEZGALERIJE BEZGALÉRIE BEZINDEKSA BEZINDEKSIRANJA BEZIZMENA BEZIZMJENA
BEZKAZALA BEZKN BEZKONVERZENADPISU BEZKONVERZEOBSAHU BEZKS BEZLINKUPŘIDATKOMENTÁŘ BEZNOVEVEZEODELJKA BEZOBSAHU
BEZPRETVARANJANASLOVA BEZPRETVARANJASADRŽAJA BEZSADRZAJA BEZSADRŽAJA BEZSPISU BEZTC BEZUREĐIVANJAODLOMAKA
BEZ_GALERIJE BEZ_INDEKSA BEZ_IZMENA BEZ_IZMJENA BEZ_NOVE_VEZE_ODELJKA BEZ_SADRŽAJA BPN BPS BREZGALERIJE
BREZKAZALA BREZKAZALAVSEBINE BREZUREJANJARAZDELKOV BÖLİDİMÖNDEMEW BÖLİMÖNDETKİZBEW BÜLEMTÖZÄTÜYUQ CAPDEGALARIA
CAPDEGALARIÁ CAPDETAULA CAPGALERIA CAPINDEX CAPTAULA CATAMAGADA CATCACHEE CATCUDD CATEGORIAOCULTA
CATEGORÍAOCULTA CATOCULTA CATÈGORIE_CACHIÊ CHỈMỤC CHỈ_MỤC CUPRINS CYSWLLTADRANNEWYDD CÁ CÁGACHUAIR DAFTARISI
DASI DEĞİŞTİRYOK DIMADRANGOLYGU DIMGOLYGUADRAN DIMRHESTRGYNNWYS DIMRHG DIMTAFLENCYNNWYS DISAMBIGUACION DOLDKAT
DWINGIO DÜZENLEMEYOK DİZİN DİZİNYOK EBDAGALLERIJA EBDAINDIĊI EBDAKK EBDAKONVERTURKONTENUT EBDAKONVERTURTITLU
EBDAKT EBDASEZZJONIMODIFIKA EBDAWERREJ EBDAĦOLQASEZZJONIĠDIDA EIOSIOMUOKKAUSTA EISISLUETT EMSAFN ENDEKS
ENDEKSYOK ENDÈXE ENHALLT ENLACECREARSECCIÓN ESTEN ESTENZARURET ESTENÇINO ET ETTIQ ETYUQ FARACONVERTIRECONTINUT
FARACONVERTIRETITLU FARACUPRINS FARAEDITSECTIUNE FARAGALERIE FARAINDEX FARALEGATURASECTIUNENOUA FCC FCT FI
FORCARSUMARIO FORCARTDC FORCEERINHOUD FORCERSOMMAIRE FORCERTDM FORCIÉR_LA_TRÂBLA FORCIÉR_LO_SOMÈRO
FORSEERONDERWARPEN FORSIRAJSADRŽAJ FORSIRANISADRŽAJ FORSIRANI_SADRŽAJ FORTEAZACUPRINS FORTUINDEKSON
FORZAROÍNDICE FORZARTDC FORZARTOC FORZAR_TDC FORÇARSOMARI FORÇARSUMÁRIO FORÇARTAULA FORÇARTDC FORÇARTDM
FORÇATAULA FT GALEREYAYOQ GALERIITA GALERÎTUNE GALERİYOK GALERİÇINO GANCÁ GANMHÍRATHRÚ GANTA
GANTIONTÚNADTEIDEAL GANTIONTÚNANÁBHAIR GANTT GEENGALERY GEENIC GEENINDEKS GEENINDEX GEENINHOUD
GEENINHOUDCONVERSIE GEENIO GEENNIEUWESECTIELINK GEENNIEUWKOPJEKOPPELING GEENNIEUWKOPJEVERWIJZING
GEENNUWEAFDELING GEENPAGINANAAMCONVERSIE GEENTC GEENTITELCONVERSIE GEEN_GALERIJ GIENBEWARKSEKSIE
GIENGALDERIEJE GIENGALLERIEJE GIENIK GIENINDEX GIENINHOUDKONVERSIE GIENNIEJKOPJENVERWIEZING GIENONDERWARPEN
GIENTITELKONVERSIE GIENTK GREYÉSERNAMEDÉNEWİ GREYÉSERNAMEDÉNEWİÇINO GØYMDKAT GİZLİKAT GİZLİKATEGORİ
HAKUKONEKIELTO HEBMENEGVA I ICHIDAGILAR ICHIDAGILARI ICHIDAGILARMAJBURIY ICHIDAGILARYOQ IIGALLERIIJA
IIRIEVDADITOASI IISIS IISISDOALLU INDEKS INDEKSER INDEKSI INDEKSIGA INDEKSIRAJ INDEKSIRANJE INDEKSITA INDEKSO
INDEKSU INDEKSUJ INDEKSYOQ INDEXAR INDEXERA INDEXIEREN INDEXOVAT INDICE INDIZIEREN INDIĊI INGABOLKENDRING
INGABOLKREDIGERING INGAINNHALDSLISTE INGENDELENDRING INGENINDEKSERING INGENINNEHÅLLSFÖRTECKNING
INGENINNHOLDSFORTEGNELSE INGENINNHOLDSKONVERTERING INGENINNHOLDSLISTE INGENNYSEKSJONSLENKE
INGENSEKSJONSREDIGERING INGENTITTELKONVERTERING INGETGALLERI INHALTSVERZEICHNIS INHALTSVERZEICHNIS_ERZWINGEN
INHOLTVERTEKEN INHOUD INHOUD_DWINGEN INKJEGALLERI INNEHÅLLSFÖRTECKNING INNHALDSLISTE INNHOLDSFORTEGNELSE
INNHOLDSLISTE INOT INOTDWENGI INTEINDEXERA INTEREDIGERASEKTION INTETGALLERI IO JASIRINSANAT JAÑABÖLİMSİLTEMESİ
JOGALERI JOREDAKTIMSEKSIONI JOTP KASXITAKATEGORIO KATEGORIAUKRYTA KATEGORIEFSHEHUR KATEGORITERSEMBUNYI
KATEGORİYANIMITİ KATMOĦBIJA KATSEM KAZALO KAŜITAKATEGORIO KEENINHOLTVERTEKEN KEENÄNNERNLINK KEINEGALERIE
KEINE_GALERIE KEINE_INHALTSKONVERTIERUNG KEINE_TITELKONVERTIERUNG KEININHALTSVERZEICHNIS KEIN_INDEX
KEIN_INHALTSVERZEICHNIS KEIN_JALLERIE KEIN_NEUER_ABSCHNITTSLINK KEIN_PLUS_LINK KHÔNGALBUM KHÔNGCHUYỂNNỘIDUNG
KHÔNGCHUYỂNTÊN KHÔNGCHỈMỤC KHÔNGLIÊNKẾTMỤCMỚI KHÔNGMỤCLỤC KHÔNGNÚTSỬAMỤC KHÔNG_ALBUM KHÔNG_CHUYỂN_NỘI_DUNG
KHÔNG_CHUYỂN_TÊN KHÔNG_CHỈ_MỤC KHÔNG_LIÊN_KẾT_MỤC_MỚI KHÔNG_MỤC_LỤC KHÔNG_NÚT_SỬA_MỤC KK KLASSKUDHYS LAHAT
LAHATRA LANS LEGATURASECTIUNENOUA LEGYENTARTALOMJEGYZÉK LEGYENTJ LIENNOUVELLESECTION LIGACAODENOVASECAO
LIGAMSECCIONNOVÈLA LIGAZÓNDANOVASECCIÓN LIGAÇÃODENOVASEÇÃO LIGILOALNOVASEKCIO LIM_DE_NOVÈLA_SÈCCION
LINKDENOVASECAO LINKDENOVASEÇÃO LINKNOVESEKCIJE LINKNOVOGODLOMKA LINKNOWEJSEKCJI LINKPŘIDATKOMENTÁŘ
LIÊNKẾTMỤCMỚI LIÊN_KẾT_MỤC_MỚI LNS LUÔNMỤCLỤC LUÔN_MỤC_LỤC LØYNDKAT MABAW MATJOQ MAZMUNDATQIZW MAZMUNI
MAZMUNSIZ MAĞLUMATALMASTIRĞIZBAW MAĞLUMATINTÜRLENDİRGİZBEW MENEGVA MINDƏRİCOT MQIZW MSIZ MZMN MÜNDƏRİCATYOX
MƏCBURİYƏ_MINDƏRİCOT MỤCLỤC MỤC_LỤC NAKATAGONGKAT NAOEDITARSECAO NAOINDEXAR NAVEROK NAVEROKTUNE NCC
NEINDEKSIRAJ NEINDEKSO NEINDEKSU NEINDEXOVAT NEKONVERTUENHAVON NEKONVERTUTITOLON NEPOMIČNOPREUSMJERAVANJE NES
NEUER_ABSCHNITTSLINK NEUPRAVOVAŤSEKCIE NG NI NICHT_INDEXIEREN NICHT_INDIZIEREN NIEINDEKSUJ
NIEJESEKSIEVERWIEZING NIETBEWERKBARESECTIE NIEUWESECTIEKOPPELING NIEUWESECTIELINK NINCSGALÉRIA NINCSINDEX
NINCSSZERK NINCSSZERKESZTÉS NINCSTARTALOMJEGYZÉK NINCSTJ NINCSÚJSZAKASZHIV NINCSÚJSZAKASZLINK NIONA_GALERIE
NIONA_TRÂBLA NION_ENDÈXE NION_LIM_DE_NOVÈLA_SÈCCION NION_SOMÈRO NIRDASI NIRDEKS NIRGAL NIRKODUL NIRKOSI
NIRPRABABA NIRSUBA NIU NKH NKT NNSL NOCC_ NOCONVERTIRCONTENIDO NOCONVERTIRTITULO NOCONVERTIRTÍTULO NOCT_
NOEDITARSECCION NOEDITARSECCIÓN NOGALERIA NOGALERÍA NOINDEXAR NOINDICE NOINOT NOKENKISKAKI NONINDEXAR
NOPIKTURAMA NOTAULA NOTDC NOVAVEZAODELJKA NOVA_VEZA_ODELJKA NOVINCULARANUEVASECCION NOVIODLOMAKPOVEZNICA
NO_EDITAR_SECCIÓN NSL NT NTC NYSEKSJONSLENKE NYTTAVSNITTLÄNK NÃOEDITARSEÇÃO NÃOINDEXAR OBSAH ONDERWARPEN
PAGALERI PAKASQAKATIGURIYA PAKSADAFTARISI PAKSADASI PAREDAKTIMPJESE PASCAPDEDEGALARIÁ
PASCAPDELIGAMSECCIONNOVÈLA PASCAPDESOMARI PASCAPDETDM PASCAPDINDÈX PATP PEIDETUDKAT PENGALIHANSTATIK
PENGALIHANSTATIS PERMANENTE_WEITERLEITUNG PETIK PETIS PIILOLUOKKA PLUS_LINK POGLAVJE PRABABA PRANALABAGIANBARU
PRIMORANISADRŽAJ PRIMORANI_SADRŽAJ QALEREYAYOX QOÝMASIZ QSIZ REDIRECCIOESTATICA REDIRECCIONESTATICA
REDIRECCIÓESTATICA REDIRECCIÓNESTÁTICA REDIRECIONAMENTOESTATICO REDIRECIONAMENTOESTÁTICO REDIRECTIONARESTATICA
REDIRECTIONSTATIQUE REDIRÈCCION_IMOBILA REJTETTKAT REJTETTKATEGÓRIA RESUM RIINDIRIZZSTATIKU RIKCHASUYUNNAQ
SABİTYÖNLENDİRME SADRZAJ SADRŽAJ SAKRIVENAKAT SAKRIVENAKATEGORIJA SANSCC SANSCONVERSIONCONTENU
SANSCONVERSIONTITRE SANSCT SB SECCIONNONEDITABLA SECCIONOEDITABLE SECCIÓNOEDITABLE SECCIÓNSNONEDITABLES
SECTIONNONEDITABLE SEMCC SEMCONVERTERCONTEUDO SEMCONVERTERCONTEÚDO SEMCONVERTERTITULO SEMCONVERTERTÍTULO SEMCT
SEMEDITARSECAO SEMEDITARSEÇÃO SEMGALERIA SEMLIGACAODENOVASECAO SEMLIGAÇÃODENOVASEÇÃO SEMLINKDENOVASECAO
SEMLINKDENOVASEÇÃO SEMSUMÁRIO SEMTDC SENBILDARO SENCDC SENCDT SENGALERIO SENGALERÍA SENLIGILOALNOVASEKCIO
SENREDAKTISEKCIOJN SENREDAKTISEKCION SEN_CONVÈRSION_DE_CONTEGNU SEN_CONVÈRSION_DE_TITRO SENÍNDICE
SERNAMEVURNAYIŞÇINO SERSIQ SERSIQÇINYO SFORZAWERREJ SG SINENLACECREARSECCIÓN SIN_GALERÍA SIN_TDC SIS SISDOALLU
SISLUETTPAKOTUS SISUKORD SISUKORDEES SISUKORRATA SISÄLLYSLUETTELO SKJULTKATEGORI SKRITAKATEGORIJA SKRIVENAKAT
SKRIVENAKATEGORIJA SKRYTÁKAT SKRYTÁKATEGÓRIA SKRÝTKAT SLANS SLNS SOMARI SOMMAIRE SOMÈRO SPIS SRS
STAOTIESEDEURVERWIEZING STATICHETENAYIŞ STATICKÉPŘESMĚROVÁNÍ STATICNAPREUSMERITEV STATIKAALIDIREKTO
STATIKUSÁTIRÁNYÍTÁS STATISCHEDOORVERWIJZING STATISCHEREDIRECT STATISKOMDIRIGERING STATISTICNOPREUSMJERENJE
STATISTOMDIRIGERING STATIČKOPREUSMERENJE STATIČNOPREUSMJERENJE STATİKHETENAYIŞ STATİKYÖNLENDİRME SUMARIO
SUMÁRIO SVÇ SÈCCION_QUE_PÔT_PAS_ÉTRE_CHANGIÊ T TAHRIRYOQ TANPADAFTARISI TANPAGALERI TANPAINDEKS
TANPAKONVERSIISI TANPAKONVERSIJUDUL TANPAPRANALABAGIANBARU TANPASUNTINGANBAGIAN TAQIRIPATINTÜRLENDİRGİZBEW
TARTALOMJEGYZÉK TARTIBLASHYOQ TATJOQ TAULA TDC TDM TEREONYLAHATRA THỂLOẠIẨN THỂ_LOẠI_ẨN TIYAQLLAPUSAPUNA TJ TP
TRÂBLA TSYASIANAGALLERY TSYASIANALAHATRA TSYAZOOVAINA TURINYS TVINGINNHOLDSFORTEGNELSE TİMARKERDIŞÇINO
UKLJUČISADRŽAJ UNANCHAY UUEALAOSALINGITA UUEALAOSALINK VERBORGENCAT VERBÖRGENKAT VERSHTOCHE_SAACHJRUPP
VERSTECKTE_KATEGORIE VERSTOPPT_KATEGORIE VINCULARANUEVASECCION VSILIKAZALOVSEBINE VYNÚTIŤOBSAH VŽDYOBSAH
WARTUNGSKATEGORIE WERREJ WIESINHOLTVERTEKEN WYMUŚSPIS YASHIRINTURKUM YENİBAŞLIKBAĞLANTISI
YENİBAŞLIKBAĞLANTISIYOK YUYARINA YUYARINANNAQ YUYARINATAATIPACHIY ZERREVURNAYIŞÇINO ZESPISEM ZVÇ
ÁLLANDÓÁTIRÁNYÍTÁS ÆНÆГАЛЕРЕЙ ÆНÆСÆР ÆНÆХАЙИВЫНÆЙ ÍNDICE ÚJSZAKASZHIV ÚJSZAKASZLINK ĐỔIHƯỚNGNHẤTĐỊNH
ĐỔI_HƯỚNG_NHẤT_ĐỊNH ĦOLQASEZZJONIĠDIDA İDY İÇERİKDÖNÜŞÜMÜYOK İÇİNDEKİLER İÇİNDEKİLERYOK İÇİNDEKİLERZORUNLU
ΔΕΣΜΟΣΝΕΑΣΕΝΟΤΗΤΑΣ ΕΥΡΕΤΗΡΙΟ ΚΡΥΦΗΚΑΤΗΓΟΡΙΑ ΜΕΠΙΝΑΚΑΠΕΡΙΕΧΟΜΕΝΩΝ ΜΕΠΠ ΠΙΝΑΚΑΣΠΕΡΙΕΧΟΜΕΝΩΝ ΠΠ
ΣΤΑΤΙΚΗΑΝΑΚΑΤΕΥΘΥΝΣΗ ΧΩΡΙΣΕΠΕΞΕΝΟΤ ΧΩΡΙΣΕΠΕΞΕΡΓΑΣΙΑΕΝΟΤΗΤΩΝ ΧΩΡΙΣΕΥΡΕΤΗΡΙΟ ΧΩΡΙΣΜΕΤΑΤΡΟΠΗΠΕΡΙΧΟΜΕΝΟΥ
ΧΩΡΙΣΜΕΤΑΤΡΟΠΗΤΙΤΛΟΥ ΧΩΡΙΣΠΙΝΑΚΑΠΕΡΙΕΧΟΜΕΝΩΝ ΧΩΡΙΣΠΙΝΑΚΟΘΗΚΗ ΧΩΡΙΣΠΠ ІНДЕКС ААБАУ ААТЫН_УЛАРЫППАККА
АГӀО_ТА_ЦА_ЕШ АИНДЕКС АЛБАН_ЭГЕ АТАУАЛМАСТЫРҒЫЗБАУ БАЦ_ЧУЛ БАЦ_ЧУЛАЦАМ БАШЛАСЫЗ БАШЛЫКЮК
БЕ_ВИРОИШИ_ҶУЗЪӢ БЕ_ИНДЕКС БЕ_НИГОРХОНА БЕ_ПАЙВАНД_БА_ҚИСМАТИ_НАВ БЕ_ТАҒЙИРИ_МАТН БЕ_ТАҒЙИРИ_САРЛАВҲА
БЕ_ФЕҲРИСТ БЕЗ_ІНДЕКСУ БЕЗ_ГАЛЕРЕЇ БЕЗ_ГАЛЕРЕИ БЕЗ_ГАЛЕРИЈЕ БЕЗ_ГАЛЕРЭІ БЕЗ_ЗМІСТУ БЕЗ_ИЗМЈЕНА БЕЗ_ИЗМЕНА
БЕЗ_ИНДЕКСА БЕЗ_НОВЕ_ВЕЗЕ_ОДЕЉКА БЕЗ_ОГЛ БЕЗ_ОГЛАВЛЕНИЯ БЕЗ_ПЕРЕТВОРЕННЯ_ЗАГОЛОВКУ БЕЗ_ПЕРЕТВОРЕННЯ_ТЕКСТУ
БЕЗ_ПОСИЛАННЯ_НА_НОВИЙ_РОЗДІЛ БЕЗ_ПРЕОБРАЗОВАНИЯ_ЗАГОЛОВКА БЕЗ_ПРЕОБРАЗОВАНИЯ_ТЕКСТА БЕЗ_РЕДАГУВ_РОЗДІЛУ
БЕЗ_РЕДАКТИРАНЕ_НА_РАЗДЕЛИ БЕЗ_РЕДАКТИРОВАНИЯ_РАЗДЕЛА БЕЗ_РЭДАГАВАНЬНЯ_СЭКЦЫІ БЕЗ_САДРЖАЈА
БЕЗ_ССЫЛКИ_НА_НОВЫЙ_РАЗДЕЛ БЕЗ_УРЕДУВАЊЕ_НА_ПОДНАСЛОВИ БЕЗВРСКАНОВПОДНАСЛОВ БЕЗГАЛЕРИЈА БЕЗГАЛЕРИЈЕ БЕЗГАЛЕРИЯ
БЕЗИЗМЈЕНА БЕЗИЗМЕНА БЕЗИНДЕКС БЕЗИНДЕКСА БЕЗИНДЕКСИРАНЕ БЕЗКН БЕЗКС БЕЗНОВЕВЕЗЕОДЕЉКА БЕЗПРЕТВОРАЊЕНАСЛОВ
БЕЗПРЕТВОРАЊЕСОДРЖИНА БЕЗСАДРЖАЈА БЕЗСОДРЖИНА БЕЗСЪДЪРЖАНИЕ БЕЗЦЦ БЛГ_ИҺН БО_ФЕҲРИСТ БУЛГУЧЧУ_ИҺИНЭЭҔИЛЭЭХ
БЯЗЬ_ЗЬМЕСТУ БҮЛЕКҮЗГӘРТҮЮК БӨЛІДІМӨНДЕМЕУ БӨЛІМӨНДЕТКІЗБЕУ ВРСКАНОВПОДНАСЛОВ ВРЪЗКА_ЗА_НОВ_РАЗДЕЛ ГАЛЕРЕЯ_ЧОК
ГАЛЕРЕЯТА_СУОХ ГАЛЛЕРЕЯСЫЗ ГУРӮҲИ_ПИНҲОН ДОПЧУ ЖАСЫРЫНСАНАТ ЖАҢАБӨЛІМСІЛТЕМЕСІ ЗМІСТ ЗЬМЕСТ ЗЬМЕСТ_ПРЫМУСАМ
ИНДЕКС ИНДЕКСИРАНЕ ИНДЕКССЫЗ ИНДЕКСТЭЭМЭ ИҺИНЭЭҔИТЭ ИҺИНЭЭҔИТЭ_СУОХ ИҺН ИҺН_СУОХ ЙАЦ_УЧЕ ЙОЗА_ХИЙЦАР_ДОЦУШ
ЙОЦАШ_ХЬАЖОРГ_ОЦ_КЕРЛАЧУ_ДЕКЪАН КИСТЭММИТ_КАТЕГОРИЯ КЪАЙЛАХА_ЙОЛУ_КАТЕГОРИ МАБАУ МАЗМҰНДАТҚЫЗУ МАЗМҰНСЫЗ
МАЗМҰНЫ МАТЖОҚ МАҒЛҰМАТАЛМАСТЫРҒЫЗБАУ МАҒЛҰМАТЫНТҮРЛЕНДІРГІЗБЕУ МЕТТИГТЕРАХЬ МЕТТИГТЕРАХЬ_ЙОЦАШ МЗМН МСЫЗ
МҚЫЗУ НЕ_КАНВЭРТАВАЦЬ_НАЗВУ НЕ_КАНВЭРТАВАЦЬ_ТЭКСТ НОВА_ВЕЗА_ОДЕЉКА НОВАВЕЗАОДЕЉКА ОБОВ_ЗМІСТ ОБЯЗ_ОГЛ
ОБЯЗАТЕЛЬНОЕ_ОГЛАВЛЕНИЕ ОГЛ ОГЛАВЛЕНИЕ ПАЙВАНД_БА_ҚИСМАТИ_НАВ ПОСИЛАННЯ_НА_НОВИЙ_РОЗДІЛ ПРИМОРАНИ_САДРЖАЈ
ПРИМОРАНИСАДРЖАЈ ПРИХОВ_КАТ ПРИХОВАНА_КАТЕГОРІЯ РАВОНАИ_СТАТИСТИКӢ СÆРТÆ СÆРТИМÆ САДРЖАЈ САКРИВЕНАКАТ
САЛААНЫ_УЛАРЫППАККА САҤА_САЛААҔА_СИГЭ САҤА_САЛААҔА_СИГЭТЭ_СУОХ СКРИЕНАКАТ СКРИЕНАКАТЕГОРИЈА СКРИТАКАТЕГОРИЯ
СКРЫТАЯ_КАТЕГОРИЯ СОДРЖИНА СОСОДРЖИНА СПАСЫЛКА_НА_НОВУЮ_СЭКЦЫЮ ССЫЛКА_НА_НОВЫЙ_РАЗДЕЛ СТАТИСТИКИН_ДӀАСХЬАЖОРГ
СТАТИЧЕСКОЕ_ПЕРЕНАПРАВЛЕНИЕ СТАТИЧКОПРЕУСМЕРЕЊЕ СТАТИЧНЕ_ПЕРЕНАПРАВЛЕННЯ СТАТИЧНОПРЕНАСОЧУВАЊЕ
СТАТЫЧНАЕ_ПЕРАНАКІРАВАНЬНЕ СХАВАЦЬ_КАТЭГОРЫЮ СЪДЪРЖАНИЕ СЪССЪДЪРЖАНИЕ ТlЕДУЬЛ_ЧУЛ ТlЕДУЬЛЛУ_ЧУЛАЦАМБАР ТАТЖОҚ
ТАҚЫРЫПАТЫНТҮРЛЕНДІРГІЗБЕУ ТИЭКИҺИН_УЛАРЫППАККА ФЕҲРИСТ ФОРСИРАНИ_САДРЖАЈ ФОРСИРАНИСАДРЖАЈ
ХАЛБАҤНААБАТ_УТААРЫЫ ХИЙЦАР_ДОЦУШ_КОЬРТЕ ХЬАЖОРГ_ОЦ_КЕРЛАЧУ_ДЕКЪАН ЧАЖЫТ_АҢГЫЛАЛ ЧУЛ ЧУЛАЦАМ ЭГЕ_ЧОК ЭЧТЕЛЕК
ҚОЙМАСЫЗ ҚСЫЗ ҮЛЕГ_ЭДИЛГЕЗИ_ЧОК ԱՌԱՆՑ_ԲԱԺՆԻ_ԽՄԲԱԳՐՄԱՆ ԱՌԱՆՑ_ԲՈՎ ԱՌԱՆՑ_ՊԱՐՈՒՆԱԿՈՒԹՅԱՆ_ՓՈՓՈԽՄԱՆ ԱՌԱՆՑ_ՍՐԱՀԻ
ԱՌԱՆՑ_ՎԵՐՆԱԳՐԻ_ՓՈՓՈԽՄԱՆ ԲՈՎ ՀՂՈՒՄ_ՆՈՐ_ԲԱԺՆԻ_ՎՐԱ ՍՏԻՊԵԼ_ԲՈՎ אינהאלט באהאלטענע_קאט באהאלטענע_קאטעגאריע
הפניה_קבועה חייב_תוכן חייב_תוכן_עניינים יצירת_הערה לא_לחיפוש לחיפוש ללא_גלריה ללא_המרת_כותרת ללא_המרת_תוכן
ללא_יצירת_הערה ללא_עריכה ללא_תוכן ללא_תוכן_עניינים נישט_רעדאקטירן קטגוריה_מוסתרת קיין_אינהאלט_טאבעלע
קיין_גאלעריע תוכן תוכן_עניינים ااباۋ اتاۋالماستىرعىزباۋ اتوقع_تصنيف_مش_مستخدم اشاریہ اشاریہ_نہیں بافهرست
بافہرست بخش‌جدید بولىدىموندەمەۋ بولىموندەتكىزبەۋ بی‌بخش بی‌برخې بی‌فهرست بی‌نمایه بی‌نندارتونه بی‌نيولک
بی‌نگارخانه بی‌نگارخنه بی‌پیوندبخش بی‌پیوند‌بخش‌جدید بې_ليکلړ تاتجوق تاقىرىپاتىنتۇرلەندىرگىزبەۋ
تحويلة_إستاتيكية تحويلة_ساكنة تحويله_إستاتيكيه تحويله_ساكنه تصنيف_مخفي تغییرمسیرثابت توقع_تصنيف_غير_مستخدم
جاسىرىنسانات جاڭابولىمسىلتەمەسى ربط_نیا_قطعہ ربط_نیا_قطعہ_نہیں رده‌پنهان ساکن_رجوع_مکرر عنوان‌تبدیل‌نشده فهرس
فهرسة فهرست فہرست فہرست_نہیں قسىز قويماسىز لا_وصلة_قسم_جديد لاتحريرقسم لاتحويل_عنوان لاتحويل_محتوى لاتع لاتم
لافهرس لافهرسة لامعرض لصق_فهرس ليکلړ ماباۋ ماتجوق مازمۇنداتقىزۋ مازمۇنسىز مازمۇنى ماعلۇماتالماستىرعىزباۋ
ماعلۇماتىنتۇرلەندىرگىزبەۋ محتواتبدیل‌نشده مزمن مسىز مقىزۋ من_غير_تحريرقسم من_غير_تحويل_محتوى من_غير_فهرس
من_غير_معرض من_غير_وصلة_قسم_جديد من_غيرتحويل_عنوان منتقلی_عنوان_نہیں منتقلی_مواد_نہیں ناترمیم_قطعہ نافہرست
نمایه نيوليک نيوليکداره نگارخانہ_نہیں وصلة_قسم_جديد پوشیدہ_زمرہ پټه_وېشنيزه अननुक्रमणी अनित्यपुनर्निदेशन
अनित्यपुनर्निर्देशनम् अनुक्रम अनुक्रम_दिखाएँ अनुक्रमणिका अनुक्रमणिकानको अनुक्रमणिकाहवीच अनुक्रमणी
अनुक्रमणी_दर्श्यताम् अनुक्रमणीसचते अनुक्रमीत अनुभाग_सम्पादन_नहीं अनुभागसम्पादनं_नास्ति अविचलपुर्ननिर्देश
असूचीबद्ध क्रमीत गैलरी_नहीं छिपी_श्रेणी छुपी_श्रेणी न_लेखपरिवर्तनम् न_शीर्षकपरिवर्तितम् नवविभागदुवा
नवीनविभागपरिसन्धिः निगूहितवर्गः नूतनविभागसम्बद्धं नैलेप नैवअनुक्रमणिका नैवअनुक्रमणी नैवलेखपरिवर्त
नैवशिर्षकपरिवर्त नैवसंक्रमणका नैवसम्पादनविभाग नैवानुक्रमणी नैशिप प्रदर्शननको बिना_अनुक्रम लुप्तवर्ग वर्गलपवा
विनाअनुक्रमीत विनाक्रमीत विनानवविभागदुवा विनामजकुरबदल विनामब विनाशीब विनाशीर्षकबदल विभागअसंपादनक्षम
विषय_जोड़े_कड़ी_रहित विषय_जोड़ें_कड़ी विषय_सूची विषय_सूची_दिखाएँ विषय_सूची_दिखायें विषय_सूची_हीन विषयसूची
विषयसूचीहीनः वीथिकाहीनः सूचीबद्ध स्थिर_अनुप्रेषण स्थिर_पुनर्प्रेषण কোন_গ্যালারি_নয় কোন_গ্যালারী_নয়
কোন_নতুন_অনুচ্ছেদের_লিঙ্ক_নয় কোন_নতুন_অনুচ্ছেদের_সংযোগ_নয় কোন_নির্ঘণ্ট_নয় কোন_বিষয়বস্তু_রূপান্তরকারী_নয়
কোন_বিষয়বস্তুর_ছক_নয় কোন_বিষয়বস্তুর_টেবিল_নয় কোন_শিরোনাম_রূপান্তরকারী_নয় কোন_সম্পাদনা_অনুচ্ছেদ_নয়
কোনগ্যালারিনয় কোনগ্যালারীনয় কোননতুনঅনুচ্ছেদেরলিঙ্কনয় কোননতুনঅনুচ্ছেদেরসংযোগনয় কোননির্ঘণ্টনয়
কোনবিষয়বস্তুরছকনয় কোনবিষয়বস্তুরটেবিলনয় কোনবিষয়বস্তুরূপান্তরকারীনয় কোনশিরোনামরূপান্তরকারীনয়
কোনসম্পাদনাঅনুচ্ছেদনয় গোপন_শ্ৰেণী নতুন_অনুচ্ছেদের_লিঙ্ক নতুন_অনুচ্ছেদের_সংযোগ নতুনঅনুচ্ছেদেরলিঙ্ক
নতুনঅনুচ্ছেদেরসংযোগ নির্ঘণ্ট নির্ঘণ্টনয় বিষয়বস্তুর_ছক বিষয়বস্তুর_টেবিল বিষয়বস্তুরছক বিষয়বস্তুরটেবিল
লুকানো_বিষয়শ্রেণী লুকানোবিষয়শ্রেণী লুকায়িতবিষয়শ্রেণী লুক্কায়িত_বিষয়শ্রেণী লুক্কায়িতবিষয়শ্রেণী সূচী
স্থির_পুনর্নির্দেশ স্থিরপুনর্নির্দেশ ନୂଆ_ବିଭାଗ_ନକରିବା_ଲିଙ୍କ ନୂଆବିଭାଗଲିଙ୍କ ବଦଳା_ନହେବାଶ୍ରେଣୀ ଲୁଚିଥିବାବିଭାଗ
విషయసూచిక విషయసూచికవద్దు ഉള്ളടക്കം ഉള്ളടക്കംഇടുക ഉള്ളടക്കംമാറ്റേണ്ട ഉള്ളടക്കംവേണ്ട ചിത്രസഞ്ചയംവേണ്ട
തലക്കെട്ട്മാറ്റേണ്ട പുതിയഖണ്ഡിക്കണ്ണി പുതിയഖണ്ഡിക്കണ്ണിവേണ്ട പുതിയവിഭാഗംകണ്ണി പുതിയവിഭാഗംകണ്ണിവേണ്ട
മറഞ്ഞിരിക്കുംവർഗ്ഗം സംശോധിക്കേണ്ട സൂചിക സൂചികവേണ്ട സ്ഥിരസ്ഥിതതിരിച്ചുവിടൽ ไม่มีสารบัญ ไม่มีแกลเลอรี่
ไม่มีแก้เฉพาะส่วน უგალერეო កុំបង្ហាញមាតិកា គ្មានបញ្ជីអត្ថបទ គ្មានមាតិកា ចំណាត់ថ្នាក់ក្រុមមិនបានបង្ហាញ
តំណភ្ជាប់ផ្នែកថ្មី តំនភ្ជាប់ផ្នែកថ្មី បង្ខំបញ្ជីអត្ថបទ បង្ខំមាតិកា បង្ខំអោយបង្ហាញមាតិកា បញ្ជីអត្ថបទ
ផ្នែកមិនត្រូវកែប្រែ មាតិកា មិនមានផ្នែកកែប្រែ មិនមានលិបិក្រម លាក់បញ្ជីអត្ថបទ លាក់ផ្នែកកែប្រែ លាក់មាតិកា
លាក់វិចិត្រសាល លិបិក្រម ស្ថិតិទំព័របញ្ជូនបន្ត インデックス インデックス拒否 カテゴリ非表示 カテ非表示
ギャラリー非表示 セクション編集非表示 タイトルコンバート拒否 タイトル変換無効 タイトル非表示 不轉換內容
不轉換標題 不转换内容 不转换标题 二重転送修正無効 二重転送解消無効 内容変換抑制 内容変換無効 強制目錄 强显目录
新しいセクションリンク 新しいセクションリンク非表示 新しい節リンク 新しい節リンク非表示 新セクションリンク
新セクションリンク非表示 新段落链接 无图库 无新段落链接 无段落编辑 无目录 无索引 无编辑段落 消除歧义 無圖庫
無段落編輯 無目錄 目录 目次 目次強制 目次非表示 目錄 節編集非表示 索引 隐藏分类 隠しカテゴリ 隱藏分類
静态重定向 静的転送 靜態重新導向 非表示カテ 갤러리숨김 내변안함 내변없음 내용변환안함 내용변환없음
넘겨주기고정 단락편집숨김 목차 목차보임 목차숨김 목차표시 문단편집숨김 부분편집숨김 새글쓰기 새글쓰기숨기기
새문단쓰기 새문단쓰기숨기기 색인 색인거부 색인안함 숨은분류 제목변환안함 제목변환없음 제변안함 제변없음
화랑숨김
"""

ANY_CASE = frozenset(_ANY_CASE.split())  # MediaWiki takes these in small letters too
SWITCHES = ANY_CASE | frozenset(_OTHERS.split())
